"""What the worlds of Services share: the cluster's own objects, a test's Services, and the Service that
tells by being served that all that was written before it is."""

import contextlib
import itertools

from lab import services
from lab.services import NAMESPACE

BARRIER = "10.96.255.1"


class ServicesWorld:
    """Those who derive from it have `lab`, `objects`, the list `services`, and settle()."""

    barriers = itertools.count(20000)   # ports that were not there before

    def put_cluster(self):
        self.objects.namespace(NAMESPACE)
        self.objects.put("networking.k8s.io/v1", "ServiceCIDR", "kubernetes", {
            "spec": {"cidrs": list(services.SERVICE_RANGE.values())}})

    def clear(self):
        """Takes a test's Services away."""
        for service in self.services:
            with contextlib.suppress(FileNotFoundError, KeyError):
                service.delete()
            with contextlib.suppress(FileNotFoundError, KeyError):
                service.delete_endpoints()
        self.services.clear()

    def endpoints(self, svc, *pods, settle=True, **options):
        """The Service's slices become these pods, by name or (name, {"conditions": ...})."""
        found = [(self.lab.pod(pod[0]), pod[1]) if isinstance(pod, tuple) else self.lab.pod(pod)
                 for pod in pods]
        svc.endpoints(*found, **options)
        if settle:
            self.settle()

    def put_barrier(self, *pods, **spec):
        """A Service with a new port for each pod, by a new name, so that slices of before do not do;
        written last, slices after it. Returns {pod: port}."""
        ports = {pod: next(self.barriers) for pod in pods}
        self.objects.put("v1", "Service", "barrier", {"spec": {
            "clusterIP": BARRIER, "clusterIPs": [BARRIER], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [
                {"name": f"p{port}", "protocol": "TCP", "port": port, "targetPort": 8080}
                for port in ports.values()], **spec}}, NAMESPACE)
        for name, port in ports.items():
            pod = self.lab.pod(name)
            self.objects.put("discovery.k8s.io/v1", "EndpointSlice", f"barrier-{name}", {
                "addressType": "IPv4",
                "endpoints": [{"addresses": [pod.address()], "nodeName": pod.node,
                               "conditions": {"ready": True}}],
                "ports": [{"name": f"p{port}", "protocol": "TCP", "port": 8080}]},
                NAMESPACE, {"kubernetes.io/service-name": "barrier"})
        return ports
