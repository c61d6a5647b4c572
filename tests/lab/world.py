"""What the tests share: a cluster's objects, its agents, and looks into the nodes' kernels."""

import concurrent.futures
import contextlib
import json

from lab import wait_ready, wait_until

TABLE = ("inet", "portolan")
PROTOCOL = "107"                       # rtm_protocol of our routes and rules
EDGE, EDGE6 = "203.0.113.9", "2001:db8:113::9"
CLIENT, CLIENT6 = "198.51.100.7", "2001:db8:51::7"
HOME_C = "192.0.2.22"                  # worker-c as the outside dials it
NAMESPACE = "games"


def at_once(function, items):
    """Calls the function for all items at the same time; raises what the first raised."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(function, items))


class World:
    """The objects of one test and the agents that act on them."""

    def __init__(self, lab, binary, source):
        """`source` is a Folder or a Kube, empty."""
        self.lab = lab
        self.binary = binary
        self.source = source
        self.objects = source.objects
        self.status = source.status
        self.everywhere = {}    # class: its nodes when it is Multi
        self.mappings = {}      # mapping: its spec
        for node in lab.nodes():
            self.objects.node(node.name, lab.mesh_address(node.name))
        self.objects.namespace(NAMESPACE)

    # Agents

    def agents(self):
        return [self.lab.agent(node.name) for node in self.lab.nodes()]

    def start_agents(self):
        for agent in self.agents():
            agent.clear_log()
            agent.start(self.binary, self.source)
        for agent in self.agents():
            agent.wait_log("event=starting")
        return self

    def check_agents(self):
        """Every agent still running ends cleanly and no sanitizer has complained."""
        def check(agent):
            if agent.returncode not in (None, 0):
                raise AssertionError(f"{agent.node}: the agent ended with {agent.returncode}:\n"
                                     f"{agent.log()[-4000:]}")
            if agent.pid:
                code = agent.stop()
                assert code == 0, f"{agent.node}: SIGTERM: {code}:\n{agent.log()[-4000:]}"
            agent.check_sanitizer()
        at_once(check, self.agents())

    def close(self):
        def end(agent):
            agent.kill()
            self.cleanup(agent.node)
            agent.clear_log()
        at_once(end, self.agents())
        self.source.clear()

    def portolan(self, node, *arguments, check=True):
        """Runs the program on a node."""
        return self.lab.node(node).run(self.binary, *arguments, check=check)

    def cleanup(self, node, *arguments):
        """Runs `portolan cleanup` on a node; returns what it said."""
        state = self.lab.agent(node).state_dir
        return self.portolan(node, "cleanup", "--state-dir", state, *arguments).stdout

    # Objects

    def public(self, nodes=None, name="public", **spec):
        """A class; by default edge-a accepts on its public interface."""
        nodes = nodes or {"edge-a": ["enp1s0"]}
        self.objects.portmapclass(name, nodes, **spec)
        self.everywhere[name] = nodes if spec.get("servingMode") == "Multi" else ()

    def service(self, name, pods, ports, families=(4,)):
        """A Service with one slice per family; `ports` are (name, protocol, target number)."""
        self.objects.service(NAMESPACE, name, ports)
        self.endpoints(name, pods, ports, families)

    def endpoints(self, name, pods, ports, families=(4,)):
        pods = [self.lab.pod(pod) if isinstance(pod, str) else pod for pod in pods]
        for family in families:
            self.objects.endpoints(NAMESPACE, name, pods, ports, family)

    def portmap(self, name, proto, port, class_name="public", **spec):
        """A mapping of `port` to the Service of the same name."""
        self.objects.portmap(NAMESPACE, name, class_name, proto.upper(), port, name, "main", **spec)
        self.mappings[name] = {"className": class_name, "protocol": proto, "port": port}

    def expose(self, name, pods, proto, port, class_name="public", target=8080, families=(4,),
               **spec):
        """A Service and a mapping of `port` to it; waits until it can be dialled."""
        self.service(name, pods, [("main", proto.upper(), target)], families)
        self.portmap(name, proto, port, class_name, **spec)
        self.programmed(name)

    def move(self, name, pods, proto, target=8080, families=(4,)):
        """The Service's endpoints become `pods`."""
        self.endpoints(name, pods, [("main", proto.upper(), target)], families)

    def programmed(self, name, timeout=10):
        """Waits until the mapping can be dialled."""
        spec = self.mappings[name]
        wait_ready(self.lab, self.status, NAMESPACE, name, spec,
                   self.everywhere[spec["className"]], timeout)

    def refused_with(self, name, kind, reason, timeout=10):
        """Waits until the condition is False for that reason; returns the message."""
        return self.status.wait_portmap(NAMESPACE, name, kind, "False", reason, timeout)

    def published(self, name):
        """[(node, interface, address)] of the mapping's status."""
        return [(row["node"], row["interface"], row.get("address", ""))
                for row in self.status.portmap(NAMESPACE, name).get("published", [])]

    # Traffic

    def sees_client(self, proto, address, port, pod, peer=None, **options):
        """Dials and asserts: that pod answered, it saw the client, the reply is from there."""
        found = self.lab.probe(proto, address, port, **options)
        expected = peer or (CLIENT6 if ":" in address else CLIENT)
        assert found.answered, found
        assert (found.pod, found.peer) == (pod, expected), found
        assert found.reply_matches, found
        return found

    def wait_answer(self, proto, address, port, pod, timeout=5, **options):
        """Dials until that pod answers."""
        def dial():
            found = self.lab.probe(proto, address, port, timeout=0.2, **options)
            return found if found.pod == pod else None
        return wait_until(dial, timeout, f"{pod} to answer on {proto} {address}:{port}")

    def wait_error(self, proto, address, port, error, timeout=5, **options):
        def dial():
            return self.lab.probe(proto, address, port, timeout=0.3, **options).error == error
        wait_until(dial, timeout, f"{proto} {address}:{port} to answer '{error}'")


def agent_logs(lab):
    """[(title, the end of the log)] of agents that have said something."""
    logs = [(node.name, lab.agent(node.name).log()) for node in lab.nodes()]
    return [(f"log of the agent on {name}", text[-6000:]) for name, text in logs if text]


@contextlib.contextmanager
def a_world(lab, binary, source):
    """A World whose agents must end cleanly and whose cleanup must leave nothing."""
    with nothing_left(lab):
        lab.flush_conntrack()
        world = World(lab, binary, source)
        try:
            yield world
            world.check_agents()
        except BaseException:       # pytest shows what was printed
            for title, text in agent_logs(lab):
                print(f"--- {title}\n{text}")
            raise
        finally:
            world.close()


@contextlib.contextmanager
def nothing_left(lab):
    """After the block nothing of ours is on any node."""
    left = {}
    try:
        yield
    finally:
        left = leftovers(lab)
        if left:
            remove_leftovers(lab)
    assert left == {}, "cleanup left something behind"


# Looks into a node's kernel

def has_table(node):
    return node.run("nft", "list", "table", *TABLE, check=False).returncode == 0


def listing(node, kind, name):
    """One of our objects as nft's JSON shows it; None when it is not there."""
    done = node.run("nft", "-j", "list", kind, *TABLE, name, check=False)
    if done.returncode != 0:
        return None
    return next(entry[kind] for entry in json.loads(done.stdout)["nftables"] if kind in entry)


def elements(node, name):
    """The elements of one of our sets or maps; none when it is not there."""
    kind = "map" if name.startswith(("target", "replymark")) else "set"
    return (listing(node, kind, name) or {}).get("elem", [])


def _plain(value):
    """Without what differs between two tables that do the same: handles, counts, order."""
    if isinstance(value, dict):
        return {key: "counter" if key == "counter" else _plain(part)
                for key, part in value.items() if key != "handle"}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def table_text(node):
    """Our table in a comparable form, a line for each object and element; "" without one."""
    done = node.run("nft", "-j", "list", "table", *TABLE, check=False)
    if done.returncode != 0:
        return ""
    try:
        listed = json.loads(done.stdout)["nftables"]
    except ValueError:      # nft 1.0.6 on a dormant table
        return done.stdout
    lines, rules_text = [], []
    for entry in listed:
        for kind, body in entry.items():
            if kind == "metainfo":
                continue
            body = _plain(body)
            found = [f"{kind} {body['name']}: {json.dumps(element, sort_keys=True)}"
                     for element in body.pop("elem", [])] if kind in ("set", "map") else []
            line = f"{kind} {json.dumps(body, sort_keys=True)}"
            (rules_text if kind == "rule" else lines).extend([line, *found])
    # Rules keep their order within a chain.
    rules_text.sort(key=lambda line: json.loads(line.removeprefix("rule "))["chain"])
    return "\n".join(sorted(lines) + rules_text)


def links(node):
    """{name: {vni, mtu, remote, ...}} of our VXLAN devices."""
    found = {}
    for link in json.loads(node.out("ip", "-d", "-j", "link", "show", "type", "vxlan") or "[]"):
        if link and link.get("ifalias", "").startswith("portolan:"):
            found[link["ifname"]] = {"mtu": link["mtu"], **link["linkinfo"]["info_data"]}
    return found


def rules(node, family=4):
    """Our policy rules as text lines."""
    lines = node.out("ip", f"-{family}", "rule").splitlines()
    return [line.strip() for line in lines if line.strip().endswith(f"proto {PROTOCOL}")]


def routes(node, family=4):
    return node.out("ip", f"-{family}", "route", "show", "table", "all", "proto",
                    PROTOCOL).splitlines()


def owned(node):
    """Everything of ours on a node; empty values left out."""
    found = {"table": has_table(node), "links": sorted(links(node)),
             "rules": rules(node) + rules(node, 6), "routes": routes(node) + routes(node, 6)}
    return {key: value for key, value in found.items() if value}


def leftovers(lab):
    """{node: what of ours is there} for nodes that hold anything."""
    nodes = lab.nodes()
    return {node.name: held for node, held in zip(nodes, at_once(owned, nodes)) if held}


def remove_leftovers(lab):
    """By hand, so that one failed test does not fail the next."""
    for node in lab.nodes():
        held = owned(node)
        if held.get("table"):
            node.run("nft", "delete", "table", *TABLE)
        for link in held.get("links", []):
            node.delete_link(link)
        for family in (4, 6) if held.get("rules") or held.get("routes") else ():
            for pref in [line.split(":")[0] for line in rules(node, family)]:
                node.run("ip", f"-{family}", "rule", "del", "pref", pref, "protocol", PROTOCOL,
                         check=False)
            node.run("ip", f"-{family}", "route", "flush", "table", "all", "proto", PROTOCOL,
                     check=False)


def snapshot(node):
    """The node's network configuration by command: what cleanup has to give back.

    Anonymous counters of foreign rules go on counting, so the ruleset is listed without state.
    """
    commands = ("nft -s list ruleset", "ip rule", "ip -6 rule", "ip route show table all",
                "ip link", "ip addr", r"sysctl -a -r ^net\.")
    taken = {command: node.out(*command.split()) for command in commands}
    taken[commands[-1]] = "\n".join(line for line in taken[commands[-1]].splitlines()
                                    if "nf_conntrack_count" not in line)
    return taken
