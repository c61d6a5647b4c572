#include "test.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "codec_help.h"

#define CLASS(spec) \
    "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMapClass\nmetadata: {name: c}\nspec:\n" spec
#define MAPPING(spec) \
    "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: m}\nspec:\n  " spec
#define GOOD_MAPPING \
    MAPPING("{className: c, protocol: UDP, port: 3000, serviceRef: {name: s, port: p}}\n")

static struct decoded yaml(const char *text)
{
    return decode(text, strlen(text), CODEC_YAML);
}

static void defaults_are_applied(void **state)
{
    (void)state;
    struct decoded d = yaml(GOOD_MAPPING "---\n" CLASS(
        "  nodes: {b: {interfaces: [y, x, y]}, a: {interfaces: [z]}}\n"
        "  returnPath: {mode: None}\n  later: [1]\n") "---\n"
                                                      "apiVersion: discovery.k8s.io/v1\nkind: "
                                                      "EndpointSlice\naddressType: IPv4\n"
                                                      "metadata: {name: e, labels: "
                                                      "{kubernetes.io/service-name: s}}\n"
                                                      "endpoints:\n- addresses: [10.0.0.1]\n- "
                                                      "{addresses: [], conditions: {ready: false, "
                                                      "terminating: null}}\nports: [{name: null, "
                                                      "port: 80}]\n");
    assert_int_equal(d.errors.n, 0);
    assert_int_equal(d.objects.n, 3);
    const struct portmap *m = (const void *)d.objects.v[0];
    assert_string_equal(m->o.meta.ns, "default");
    assert_int_equal(m->end_port, 3000);
    assert_false(m->has_end_port);
    assert_int_equal(m->protocol, L4_UDP);
    assert_string_equal(m->status.endpoint_node, "");
    const struct portmap_class *c = (const void *)d.objects.v[1];
    assert_string_equal(c->o.meta.ns, "");
    assert_int_equal(c->n_nodes, 2);
    assert_string_equal(c->nodes[0].name, "a");
    assert_int_equal(c->nodes[1].interfaces.n, 2);
    assert_string_equal(c->nodes[1].interfaces.v[0], "y");
    assert_int_equal(c->serving_mode, SERVING_SINGLE);
    assert_int_equal(c->port_min, 1);
    assert_int_equal(c->port_max, 65535);
    assert_int_equal(c->vni, 4242);
    assert_int_equal(c->vxlan_port, 4790);
    assert_string_equal(c->subnet, "169.254.77.0/24");
    assert_string_equal(c->subnet6, "fd64:f5ac:e961::/112");
    assert_false(c->has_selector);
    const struct endpoint_slice *e = (const void *)d.objects.v[2];
    assert_string_equal(e->service, "s");
    assert_true(e->endpoints[0].ready && e->endpoints[0].serving && !e->endpoints[0].terminating);
    assert_true(!e->endpoints[1].ready && e->endpoints[1].serving && !e->endpoints[1].terminating);
    assert_int_equal(e->ports[0].protocol, L4_TCP);
    assert_string_equal(e->ports[0].name, "");
    decoded_done(&d);
}

#define PROXIED                                                                                   \
    "apiVersion: v1\nkind: Service\n"                                                             \
    "metadata: {name: web, namespace: a, creationTimestamp: '1970-01-01T00:01:40Z',\n"            \
    "  labels: {service.kubernetes.io/service-proxy-name: '', other: x}}\n"                       \
    "spec:\n  type: LoadBalancer\n  clusterIP: 10.96.0.1\n  externalIPs: [192.0.2.1]\n"           \
    "  externalTrafficPolicy: Local\n  healthCheckNodePort: 30999\n"                              \
    "  loadBalancerSourceRanges: [' 10.0.0.0/8']\n  sessionAffinity: ClientIP\n"                  \
    "  ports: [{port: 80, targetPort: web, nodePort: 30080}, {port: 53, protocol: UDP}]\n"        \
    "status: {loadBalancer: {ingress: [{ip: 192.0.2.9, ipMode: Proxy}, {hostname: x.y}]}}\n"      \
    "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"              \
    "metadata: {name: e, annotations: {endpoints.kubernetes.io/last-change-trigger-time: never}," \
    " labels: {kubernetes.io/service-name: web}}\n"                                               \
    "endpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: z}]}, nodeName: n},\n"         \
    "            {addresses: [10.0.0.2], nodeName: n}]\n"                                         \
    "---\napiVersion: v1\nkind: Node\n"                                                           \
    "metadata: {name: n, deletionTimestamp: '1970-01-01T00:01:40Z'}\n"                            \
    "spec: {podCIDR: 10.0.0.0/24, taints: [{key: ToBeDeletedByClusterAutoscaler}]}\n"             \
    "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\n"    \
    "spec: {cidrs: [10.96.0.0/12]}\n"

static void what_the_service_proxy_reads(void **state)
{
    (void)state;
    struct decoded d = yaml(PROXIED);
    assert_int_equal(d.errors.n, 0);
    const struct service *s = (const void *)d.objects.v[0];
    assert_int_equal(s->o.meta.creation, 100);
    assert_true(s->other_proxy && !s->headless);
    assert_int_equal(s->type, SERVICE_LOADBALANCER);
    assert_int_equal(s->cluster_ips.n, 1);
    assert_string_equal(s->cluster_ips.v[0], "10.96.0.1");
    assert_string_equal(s->external_ips.v[0], "192.0.2.1");
    assert_string_equal(s->source_ranges.v[0], " 10.0.0.0/8");
    assert_int_equal(s->external_policy, POLICY_LOCAL);
    assert_int_equal(s->internal_policy, POLICY_CLUSTER);
    assert_int_equal(s->health_check_port, 30999);
    assert_int_equal(s->affinity_timeout, 10800);
    assert_int_equal(s->ports[0].node_port, 30080);
    assert_int_equal(s->ports[1].node_port, 0);
    assert_int_equal(s->n_ingress, 2);
    assert_int_equal(s->ingress[0].mode, IP_MODE_PROXY);
    assert_string_equal(s->ingress[1].ip, "");
    assert_int_equal(s->ingress[1].mode, IP_MODE_VIP);
    const struct endpoint_slice *e = (const void *)d.objects.v[1];
    assert_int_equal(e->trigger, 0);
    assert_string_equal(e->endpoints[0].hints->zones.v[0], "z");
    assert_null(e->endpoints[1].hints);
    assert_ptr_equal(e->endpoints[0].node_name, e->endpoints[1].node_name);
    const struct node *n = (const void *)d.objects.v[2];
    assert_int_equal(n->deletion, 100);
    assert_true(n->to_be_deleted);
    assert_string_equal(n->pod_cidrs.v[0], "10.0.0.0/24");
    const struct service_cidr *c = (const void *)d.objects.v[3];
    assert_string_equal(c->cidrs.v[0], "10.96.0.0/12");
    decoded_done(&d);
}

static void versions_are_kept_of_services_whose_status_is_ours(void **state)
{
    (void)state;
    struct decoded d =
        yaml("apiVersion: v1\nkind: List\nitems:\n"
             "- {apiVersion: v1, kind: Service, metadata: {name: a, resourceVersion: "
             "'7'}, spec: {type: LoadBalancer, loadBalancerIP: 203.0.113.9, "
             "loadBalancerClass: reweave.levk.dev/node-address}}\n"
             "- {apiVersion: v1, kind: Service, metadata: {name: b, resourceVersion: "
             "'7'}, spec: {type: LoadBalancer, loadBalancerClass: x.y/z}}\n"
             "- {apiVersion: v1, kind: Service, metadata: {name: c, resourceVersion: "
             "'7'}, spec: {type: ClusterIP}}\n");
    static const char *const versions[] = { "7", "", "" };
    assert_int_equal(d.errors.n, 0);
    assert_int_equal(d.objects.n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(d.objects.v[i]->meta.resource_version, versions[i]);
    const struct service *a = (const void *)d.objects.v[0], *b = (const void *)d.objects.v[1];
    assert_string_equal(a->load_balancer_ip, "203.0.113.9");
    assert_string_equal(b->load_balancer_class, "x.y/z");
    assert_string_equal(b->load_balancer_ip, "");
    decoded_done(&d);
}

/* Servers take any text there, from whoever may write annotations: a kubelet, of its own Node. */
static void an_annotation_cannot_make_a_node_unreadable(void **state)
{
    (void)state;
    static const char text[] =
        "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"a\", "
        "\"annotations\": {\"reweave.levk.dev/addresses\": \"192.0.2.1\\u0000,\\u0000\", "
        "\"z\": \"\\u0000\", \"y\": \"\\ud800 \\\"\\n\"}}}";
    struct decoded d = decode(text, sizeof(text) - 1, CODEC_JSON);
    assert_int_equal(d.errors.n, 0);
    assert_int_equal(d.objects.n, 1);
    const struct label_list *l = &d.objects.v[0]->meta.annotations;
    assert_int_equal(l->n, 3);
    assert_string_equal(label_value(l, ANNOTATION_ADDRESSES), "192.0.2.1\xef\xbf\xbd,\xef\xbf\xbd");
    assert_string_equal(label_value(l, "z"), "\xef\xbf\xbd");
    decoded_done(&d);
}

static void what_is_wrong_is_named_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        { MAPPING("{className: c, protocol: TCP, port: '80', serviceRef: {name: s, port: p}}"),
          "5:39: PortMap default/m: spec.port is \"80\"; an integer from 1 to 65535 is needed" },
        { MAPPING("{className: c, protocol: TCP, port: 65536, serviceRef: {name: s, port: p}}"),
          "5:39: PortMap default/m: spec.port is 65536; an integer from 1 to 65535 is needed" },
        { MAPPING("{className: c, protocol: SCTP, port: 1, serviceRef: {name: s, port: p}}"),
          "5:28: PortMap default/m: spec.protocol is SCTP; TCP or UDP is needed" },
        { MAPPING("{className: c, protocol: TCP, port: 1, serviceRef: {name: s, port: 80}}"),
          "5:70: PortMap default/m: spec.serviceRef.port is 80; a string is needed: put it in "
          "quotes" },
        { MAPPING("{className: c, protocol: TCP, port: 1, serviceRef: {name: s}}"),
          "5:54: PortMap default/m: spec.serviceRef.port is missing; a string is needed" },
        { MAPPING("{className: c, className: d}"),
          "5:18: PortMap default/m: spec.className is given twice: keep one" },
        { MAPPING("{className: c, protocol: TCP, port: 1, serviceRef: {name: s, port: p}, "
                  "interfaces: [wt0, a/b]}"),
          "5:92: PortMap default/m: spec.interfaces[1] is a/b; an interface name is needed: 1 to "
          "15 bytes without '/', ':' and white space" },
        { "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: m}\n",
          "1:1: PortMap default/m: spec is missing; a map is needed" },
        { CLASS("  nodes: {}\n  returnPath: {mode: None}\n"),
          "5:10: PortMapClass c: spec.nodes is an empty map; a map with at least one entry is "
          "needed" },
        { CLASS("  nodes: {a: {interfaces: [x]}}\n"),
          "5:3: PortMapClass c: spec.returnPath is missing; a map is needed" },
        { CLASS("  nodes: {a: {interfaces: [x]}}\n  returnPath: {}\n"),
          "6:15: PortMapClass c: spec.returnPath.mode is missing; Vxlan or None is needed" },
        { CLASS("  nodes: {a: {interfaces: [x]}}\n  returnPath: {mode: Vxlan, vxlan: {vni: "
                "16777216}}\n"),
          "6:42: PortMapClass c: spec.returnPath.vxlan.vni is 16777216; an integer from 1 to "
          "16777215 is needed" },
        { CLASS("  nodes: {a: {interfaces: [x]}, a: {interfaces: [x]}}\n"),
          "5:10: PortMapClass c: spec.nodes has a key twice: keep one" },
        { CLASS("  ports: {reserved: [1, x]}\n"),
          "5:25: PortMapClass c: spec.ports.reserved[1] is x; an integer from 1 to 65535 is "
          "needed" },
        { "apiVersion: v1\nkind: Node\nmetadata: {name: A}\n",
          "3:18: Node A: metadata.name is A; a DNS name is needed: a-z, 0-9, '-' and '.', at most "
          "253 characters" },
        { "apiVersion: v1\nkind: Node\nmetadata: {}\n",
          "3:11: Node without a name: metadata.name is missing; a DNS name is needed: a-z, 0-9, "
          "'-' "
          "and '.', at most 253 characters" },
        { "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {addresses: [{type: "
          "InternalIP, address: [x]}]}\n",
          "4:50: Node a: status.addresses[0].address is a list; an IP address is needed" },
        { "apiVersion: v1\nkind: Node\nmetadata: {name: \"a\\0b\"}\n",
          "3:18: Node without a name: metadata.name holds a NUL byte: take it out" },
        { "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: &x {a: b}, annotations: *x}\n",
          "3:53: Node a: a YAML alias (*name) is not supported: write out what it stands for" },
        { "- &x a\n- *x\n",
          "2:3: document: a YAML alias (*name) is not supported: write out what it stands for" },
        { "kind: Node\n",
          "1:1: Node without a name: apiVersion is missing: an object needs apiVersion, kind and "
          "metadata with a name" },
        { "- a\n",
          "1:1: a list is no object: one needs apiVersion, kind and metadata with a name" },
        { "a: b\n c: d\n", "2:3: not YAML: mapping values are not allowed in this context" },
        { "hello\n",
          "1:1: hello is no object: one needs apiVersion, kind and metadata with a name" },
        { "a:\n  b: c\n\td: e\n",
          "3:1: not YAML: while scanning a plain scalar: found a tab character that violates "
          "indentation: use spaces, not tabs" },
        { "a:\n\tb: c\n",
          "2:1: not YAML: while scanning for the next token: found character that cannot start any "
          "token: use spaces, not tabs" },
        { "a: [\n",
          "2:1: not YAML: while parsing a flow node: did not find expected node content" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoded d = yaml(cases[i].text);
        assert_int_equal(d.objects.n, 0);
        assert_int_equal(d.errors.n, 1);
        assert_string_equal(d.errors.v[0], cases[i].error);
        decoded_done(&d);
    }
}

/* What a person wrote is held to more than what an API server or we ourselves did. */
static void a_manifest_holds_nothing_unknown(void **state)
{
    (void)state;
#define KNOWN "className: c, protocol: TCP, port: 1, serviceRef: {name: s, port: p}"
    static const struct {
        const char *text, *error;
    } cases[] = {
        { MAPPING("{" KNOWN ", interface: [eth0]}"),
          "5:74: PortMap default/m: spec.interface is unknown; did you mean interfaces?" },
        { MAPPING("{" KNOWN ", classname: null}"),
          "5:74: PortMap default/m: spec.classname is unknown; did you mean className?" },
        { MAPPING("{" KNOWN ", node: a}"),
          "5:74: PortMap default/m: spec.node is unknown; known are className, protocol, port, "
          "endPort, interfaces and serviceRef" },
        { MAPPING("{" KNOWN ", ? [a] : b}"),
          "5:76: PortMap default/m: spec is a list; a map whose keys are names of fields is "
          "needed" },
        { CLASS("  namespaceSelector: {matchLables: {a: b}}\n"),
          "5:23: PortMapClass c: spec.namespaceSelector.matchLables is unknown; did you mean "
          "matchLabels?" },
        { CLASS("  nodes: {a: {interfaces: [x], interface: y}}\n"),
          "5:32: PortMapClass c: spec.nodes.a.interface is unknown; did you mean interfaces?" },
        { CLASS("  ports: {mn: 1024}\n"),
          "5:11: PortMapClass c: spec.ports.mn is unknown; did you mean min?" },
        { CLASS("  ports: {max: 1000, min: 2000}\n"),
          "5:27: PortMapClass c: spec.ports.min is 2000, above max, which is 1000: lower min or "
          "raise max" },
        { "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: m, x: y}\n"
          "status: {x: y}\nSpec: {}\n",
          "5:1: PortMap default/m: Spec is unknown; did you mean spec?" },
        { "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\nmetadata: {name: m}\ndata: {}\n",
          "4:1: PortMap default/m: data is unknown; known are apiVersion, kind, metadata, spec and "
          "status" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoded d = decode_as(cases[i].text, strlen(cases[i].text), CODEC_YAML, true);
        assert_int_equal(d.objects.n, 0);
        assert_int_equal(d.errors.n, 1);
        assert_string_equal(d.errors.v[0], cases[i].error);
        decoded_done(&d);
    }
    static const char ignored[] = MAPPING("{" KNOWN ", x: y}\n") "x: y\n---\n" CLASS(
        "  nodes: {a: {interfaces: [x]}}\n  ports: {min: 2, max: 1}\n"
        "  returnPath: {mode: None, x: y}\n");
    struct decoded d = decode_as(ignored, sizeof(ignored) - 1, CODEC_YAML, false);
    assert_int_equal(d.objects.n, 2);
    decoded_done(&d);
}

static void a_kind_spelt_wrong_is_no_other_kind(void **state)
{
    (void)state;
#define OF(version, kind) "apiVersion: " version "\nkind: " kind "\nmetadata: {name: m}\n"
    static const struct {
        const char *text, *error;
    } cases[] = {
        { OF("kuport.wlz.li/v1alpha1", "Portmap"),
          "2:7: PortMap default/m: kind is Portmap; did you mean PortMap?" },
        { OF("kuport.wlz.li/v1alpha1", "PortMapClas"),
          "2:7: PortMapClass m: kind is PortMapClas; did you mean PortMapClass?" },
        { OF("kuport.wlz.li/v1", "PortMap"),
          "1:13: PortMap default/m: apiVersion is kuport.wlz.li/v1; did you mean "
          "kuport.wlz.li/v1alpha1?" },
        { OF("v1", "PortMapClass"),
          "1:13: PortMapClass m: apiVersion is v1; did you mean kuport.wlz.li/v1alpha1?" },
        { OF("discovery.k8s.io/v1beta1", "EndpointSlice"),
          "1:13: EndpointSlice default/m: apiVersion is discovery.k8s.io/v1beta1; did you mean "
          "discovery.k8s.io/v1?" },
        { OF("v1", "service"), "2:7: Service default/m: kind is service; did you mean Service?" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoded d = yaml(cases[i].text);
        assert_int_equal(d.errors.n, 1);
        assert_string_equal(d.errors.v[0], cases[i].error);
        decoded_done(&d);
    }
    struct decoded d =
        yaml(OF("v1", "Pod") "---\n" OF("serving.knative.dev/v1", "Service") "---\n" OF(
            "v1", "Services") "---\n" OF("kuport.wlz.li/v1alpha1", "Tunnel"));
    assert_int_equal(d.unknown.n, 4);
    decoded_done(&d);
}

static void one_bad_object_leaves_the_others(void **state)
{
    (void)state;
    struct decoded d = yaml("---\n---\n" GOOD_MAPPING "---\n" MAPPING(
        "{}\n") "---\n" GOOD_MAPPING
                "---\napiVersion: apps/v1\nkind: Deployment\nspec: *nothing\n...\n");
    assert_int_equal(d.objects.n, 2);
    assert_int_equal(d.errors.n, 1);
    assert_int_equal(d.unknown.n, 1);
    assert_string_equal(d.unknown.v[0], "apps/v1 Deployment");
    decoded_done(&d);
}

static void lists_are_read_item_by_item(void **state)
{
    (void)state;
    static const char text[] = "apiVersion: v1\nitems:\n"
                               "- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n"
                               "- apiVersion: v1\n  kind: Node\n  metadata: {name: 5}\n"
                               "- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: b\n"
                               "    labels: {items: x}\n"
                               "kind: List\nmetadata: {resourceVersion: ''}\n---\n"
                               "apiVersion: v1\nkind: Node\nmetadata: {name: c}\n";
    struct decoded d = yaml(text);
    assert_int_equal(d.errors.n, 1);
    assert_int_equal(d.objects.n, 3);
    assert_string_equal(d.objects.v[1]->meta.name, "b");
    assert_string_equal(label_value(&d.objects.v[1]->meta.labels, "items"), "x");
    assert_string_equal(d.objects.v[2]->meta.name, "c");
    decoded_done(&d);
}

static void json_has_places_too(void **state)
{
    (void)state;
    static const char text[] =
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\n"
        "  \"metadata\": {\"name\" : \"a\\\"\",\n\t\"labels\":{}}}\n"
        "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n"
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"b\"}}]}"
        "\n[1,]";
    struct decoded d = decode(text, sizeof(text) - 1, CODEC_JSON);
    assert_int_equal(d.objects.n, 1);
    assert_int_equal(d.errors.n, 2);
    assert_string_equal(d.errors.v[0],
                        "2:25: Node a\": metadata.name is \"a\"\"; a DNS name is needed: "
                        "a-z, 0-9, '-' and '.', at most 253 characters");
    assert_string_equal(d.errors.v[1],
                        "6:4: not JSON: parse error: unallowed token at this point in JSON text");
    decoded_done(&d);
}

static void scalars_follow_the_core_schema(void **state)
{
    (void)state;
    static const struct {
        const char *port;
        int value; /* 0: refused */
    } cases[] = { { "0x50", 80 },       { "0o120", 80 },
                  { "+80", 80 },        { "080", 80 },
                  { "80.0", 0 },        { "8e1", 0 },
                  { "-1", 0 },          { "''", 0 },
                  { "~", 0 },           { "!!str 80", 0 },
                  { "!!int '80'", 80 }, { "! 80", 0 },
                  { "!x 80", 80 },      { "99999999999999999999", 0 },
                  { "[80]", 0 },        { "yes", 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = { 0 };
        buf_printf(&b,
                   MAPPING("{className: yes, protocol: TCP, port: %s, serviceRef: {name: s, "
                           "port: off}}\n"),
                   cases[i].port);
        struct decoded d = yaml(b.p);
        assert_int_equal(d.objects.n, cases[i].value != 0);
        if (cases[i].value)
            assert_int_equal(((struct portmap *)d.objects.v[0])->port, cases[i].value);
        decoded_done(&d);
        buf_done(&b);
    }
}

static void limits_hold(void **state)
{
    (void)state;
    struct buf b = { 0 };
    for (int i = 0; i < 100; i++)
        buf_puts(&b, "[");
    struct decoded d = decode(b.p, b.n, CODEC_JSON);
    assert_string_equal(d.errors.v[0], "1:65: nested deeper than 64 levels");
    decoded_done(&d);
    d = decode(b.p, b.n, CODEC_YAML);
    assert_string_equal(d.errors.v[0], "1:65: nested deeper than 64 levels");
    decoded_done(&d);
    buf_clear(&b);
    buf_puts(&b, "[");
    for (int i = 0; i < 500000; i++)
        buf_puts(&b, "1,");
    d = decode(b.p, b.n, CODEC_JSON);
    assert_non_null(strstr(d.errors.v[0], "an object larger than 4 MiB or 400000 values"));
    decoded_done(&d);
    buf_done(&b);
}

static void a_host_is_read_from_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/test-codec-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] =
        "apiVersion: portolan/v1\nkind: PortolanHost\nmetadata: {name: edge-a}\n"
        "forwarding6: false\ninterfaces:\n"
        "- {name: wt0, mtu: 1400, addresses: [100.64.0.1/32, 'fd00::1/128']}\n"
        "- {name: eth0, up: false, default4: true, acceptRA: 2}\n---\n"
        "apiVersion: portolan/v1\nkind: PortolanHost\nmetadata: {name: bad}\n"
        "interfaces: [{name: x, addresses: [10.0.0.1]}]\n---\n"
        "apiVersion: portolan/v1\nkind: PortolanHost\nmetadata: {name: bridge}\n"
        "bridgeNfCallIptables: 1\n"
        "interfaces: [{name: weave, bridge: true, mac: '9e:1c:3f:00:a2:07'}]\n---\n"
        "apiVersion: portolan/v1\nkind: PortolanHost\nmetadata: {name: short}\n"
        "interfaces: [{name: weave, mac: '9e:1c:3f:00:a2'}]\n";
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    struct arena mem = { 0 };
    struct host h;
    struct err err;
    assert_int_equal(host_decode_file(path, "edge-a", &mem, &h, &err), 0);
    assert_true(h.forwarding4 && !h.forwarding6 && h.ipv6);
    assert_string_equal(h.forwarding4_error, "");
    assert_int_equal(h.n_ifaces, 2);
    assert_string_equal(h.ifaces[0].name, "eth0");
    assert_int_equal(h.ifaces[0].mtu, 1500);
    assert_int_equal(h.ifaces[0].accept_ra, 2);
    assert_true(!h.ifaces[0].up && h.ifaces[0].default4 && h.ifaces[1].up);
    assert_int_equal(h.ifaces[1].n_addresses, 2);
    assert_int_equal(h.ifaces[1].addresses[0].prefix_len, 32);
    assert_true(host_decode_file(path, "bad", &mem, &h, &err) < 0);
    assert_non_null(strstr(err.text, ":12:36: PortolanHost bad: interfaces[0].addresses[0] is "
                                     "10.0.0.1; an address with prefix"));
    assert_int_equal(h.bridge_nf_call_iptables, -1);
    assert_int_equal(host_decode_file(path, "bridge", &mem, &h, &err), 0);
    assert_true(h.ifaces[0].bridge && h.bridge_nf_call_iptables == 1);
    assert_memory_equal(h.ifaces[0].mac, "\x9e\x1c\x3f\0\xa2\x07", 6);
    assert_true(host_decode_file(path, "short", &mem, &h, &err) < 0);
    assert_non_null(strstr(err.text, "interfaces[0].mac is \"9e:1c:3f:00:a2\"; a hardware"));
    assert_true(host_decode_file(path, "none", &mem, &h, &err) < 0);
    assert_non_null(strstr(err.text, "metadata.name is none"));
    arena_done(&mem);
    unlink(path);
}

static void yaml_is_written_as_kubectl_writes_it(void **state)
{
    (void)state;
    struct decoded d = yaml(
        "apiVersion: kuport.wlz.li/v1alpha1\nkind: PortMap\n"
        "metadata: {name: m, namespace: games, generation: 2, creationTimestamp: "
        "2026-01-02T03:04:05Z, labels: {b: 'true', a: 'x: y'}}\n"
        "spec: {className: c, protocol: TCP, port: 80, endPort: 90, interfaces: [eth0], "
        "serviceRef: {name: s, port: '80'}}\n"
        "status: {endpoint: {node: a, address: 10.0.0.1}, published: [{node: a, interface: eth0}], "
        "conditions: [{type: Accepted, status: 'True', reason: Valid}]}\n");
    assert_int_equal(d.objects.n, 1);
    struct buf b = { 0 };
    struct writer *w = writer_yaml_new(&b);
    encode_object(w, d.objects.v[0]);
    writer_free(w);
    assert_string_equal(b.p, "apiVersion: kuport.wlz.li/v1alpha1\n"
                             "kind: PortMap\n"
                             "metadata:\n"
                             "  creationTimestamp: \"2026-01-02T03:04:05Z\"\n"
                             "  generation: 2\n"
                             "  labels:\n"
                             "    a: 'x: y'\n"
                             "    b: \"true\"\n"
                             "  name: m\n"
                             "  namespace: games\n"
                             "spec:\n"
                             "  className: c\n"
                             "  protocol: TCP\n"
                             "  port: 80\n"
                             "  endPort: 90\n"
                             "  interfaces:\n"
                             "  - eth0\n"
                             "  serviceRef:\n"
                             "    name: s\n"
                             "    port: \"80\"\n"
                             "status:\n"
                             "  endpoint:\n"
                             "    node: a\n"
                             "    address: 10.0.0.1\n"
                             "  published:\n"
                             "  - node: a\n"
                             "    interface: eth0\n"
                             "    address: \"\"\n"
                             "  conditions:\n"
                             "  - type: Accepted\n"
                             "    status: \"True\"\n"
                             "    reason: Valid\n"
                             "    message: \"\"\n");
    buf_done(&b);
    decoded_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_applied),
        cmocka_unit_test(what_the_service_proxy_reads),
        cmocka_unit_test(versions_are_kept_of_services_whose_status_is_ours),
        cmocka_unit_test(an_annotation_cannot_make_a_node_unreadable),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(a_manifest_holds_nothing_unknown),
        cmocka_unit_test(a_kind_spelt_wrong_is_no_other_kind),
        cmocka_unit_test(one_bad_object_leaves_the_others),
        cmocka_unit_test(lists_are_read_item_by_item),
        cmocka_unit_test(json_has_places_too),
        cmocka_unit_test(scalars_follow_the_core_schema),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_host_is_read_from_a_file),
        cmocka_unit_test(yaml_is_written_as_kubectl_writes_it),
    };
    return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
