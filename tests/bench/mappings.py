#!/usr/bin/python3
"""Writes a manifest folder with N mappings, the same bytes every time.

  tests/bench/mappings.py DIR --mappings N [--layout object|namespace] [--spare S]

A hundred mappings share a namespace. Each has a Service and an EndpointSlice with a pod on
the node; TCP and UDP take turns. `--spare` adds services without a mapping. Layout `object` is
one file per object, `namespace` one file per namespace and kind.
"""

import argparse
import ipaddress
from pathlib import Path

NODE = "bench"
INTERFACE = "acc0"
DIALLED = "203.0.113.9"
TARGET_PORT = 3000
PER_NAMESPACE = 100
FIRST_POD = ipaddress.IPv4Address("10.244.0.2")
MOVED_POD = ipaddress.IPv4Address("10.245.0.2")

META = """metadata:
  name: {name}
  namespace: {namespace}
  uid: {kind:02d}{index:06d}-0000-4000-8000-000000000000
  generation: 1
  creationTimestamp: "2026-01-01T00:00:00Z"
"""


def namespace(i):
    return f"games-{i // PER_NAMESPACE:03d}"


def name(i):
    return f"gameserver-{i:05d}"


def protocol(i):
    return "UDP" if i % 2 else "TCP"


def port(i):
    """Two neighbours, one TCP and one UDP, share a number and a pod."""
    return 10000 + i // 2


def pod(i):
    return str(FIRST_POD + i // 2)


def moved_pod(i):
    return str(MOVED_POD + i // 2)


def meta(kind, i, suffix=""):
    return META.format(name=name(i) + suffix, namespace=namespace(i), kind=kind, index=i)


def service(i):
    return f"""apiVersion: v1
kind: Service
{meta(1, i)}spec:
  type: ClusterIP
  clusterIP: 10.{96 + i // 65536}.{i // 256 % 256}.{i % 256}
  selector: {{app: {name(i)}}}
  ports:
  - {{name: game, protocol: {protocol(i)}, port: {TARGET_PORT}, targetPort: {TARGET_PORT}}}
"""


def endpoint_slice(i, address):
    return f"""apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
{meta(2, i, "-abcde")}  labels:
    endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
    kubernetes.io/service-name: {name(i)}
addressType: IPv4
ports:
- {{name: game, protocol: {protocol(i)}, port: {TARGET_PORT}}}
endpoints:
- addresses: [{address}]
  conditions: {{ready: true, serving: true, terminating: false}}
  nodeName: {NODE}
  targetRef: {{kind: Pod, name: {name(i)}-0, namespace: {namespace(i)}}}
"""


def portmap(i):
    return f"""apiVersion: kuport.wlz.li/v1alpha1
kind: PortMap
{meta(3, i)}spec:
  className: public
  protocol: {protocol(i)}
  port: {port(i)}
  serviceRef: {{name: {name(i)}, port: game}}
"""


def cluster(namespaces):
    nodes = [(NODE, DIALLED), ("worker-b", "192.0.2.12"), ("worker-c", "192.0.2.13")]
    texts = [f"""apiVersion: v1
kind: Node
metadata: {{name: {node}}}
status: {{addresses: [{{type: InternalIP, address: {address}}}]}}
""" for node, address in nodes]
    texts += [f"""apiVersion: v1
kind: Namespace
metadata: {{name: {ns}, labels: {{kuport.wlz.li/public: allowed}}}}
""" for ns in namespaces]
    texts.append(f"""apiVersion: kuport.wlz.li/v1alpha1
kind: PortMapClass
metadata: {{name: public, generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}}
spec:
  nodes:
    {NODE}: {{interfaces: [{INTERFACE}]}}
  ports: {{min: 1024, max: 65535}}
  namespaceSelector: {{matchLabels: {{kuport.wlz.li/public: allowed}}}}
  returnPath: {{mode: Vxlan}}
""")
    return "---\n".join(texts)


def portmap_file(i):
    return f"portmap-{i:05d}.yaml"


def slice_file(i):
    return f"slice-{i:05d}.yaml"


def write(folder, mappings, spare=0, layout="object"):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    total = mappings + spare
    files = {"cluster.yaml": [cluster(sorted({namespace(i) for i in range(total)}))]}
    for i in range(total):
        objects = [(f"service-{i:05d}.yaml", "services", service(i)),
                   (slice_file(i), "slices", endpoint_slice(i, pod(i)))]
        if i < mappings:
            objects.append((portmap_file(i), "portmaps", portmap(i)))
        for own, shared, text in objects:
            file = own if layout == "object" else f"{namespace(i)}-{shared}.yaml"
            files.setdefault(file, []).append(text)
    for file, texts in files.items():
        (folder / file).write_text("---\n".join(texts))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--mappings", type=int, required=True, metavar="N")
    parser.add_argument("--spare", type=int, default=0, metavar="S")
    parser.add_argument("--layout", choices=["object", "namespace"], default="object")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.mappings, arguments.spare, arguments.layout)


if __name__ == "__main__":
    main()
