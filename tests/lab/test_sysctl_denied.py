"""IPv6 forwarding that is off and cannot be switched on: IPv4 is unaffected, and the node says why."""

from lab import wait_until
from world import CLIENT, EDGE, EDGE6

SWITCH = "/proc/sys/net/ipv6/conf/all/forwarding"
WRAPPER = """#!/bin/sh
mount --bind {switch} {switch} && mount -o remount,bind,ro {switch} && exec {binary} "$@"
"""


def test_ipv4_answers_and_ipv6_refuses_where_forwarding_cannot_be_set(world, lab, tmp_path):
    wrapper = tmp_path / "portolan"
    wrapper.write_text(WRAPPER.format(switch=SWITCH, binary=world.binary))
    wrapper.chmod(0o755)
    edge = lab.node("edge-a")
    edge.sysctl("net.ipv6.conf.all.forwarding", 0)
    try:
        world.start_agents()
        lab.agent("edge-a").stop()
        lab.agent("edge-a").start(str(wrapper), world.source)
        world.public()
        world.expose("web", ["a1"], "tcp", 3000, families=(4, 6))
        wait_until(lambda: "IPv6" in world.status.node_row("public", "edge-a").get("message", ""), 5,
                   "the node's row to name IPv6")
        probe = lab.probe("tcp", EDGE, 3000)
        assert (probe.answered, probe.peer) == (True, CLIENT)
        assert lab.probe("tcp", EDGE6, 3000).error == "refused"
        assert edge.out("cat", SWITCH).strip() == "0"
    finally:
        edge.sysctl("net.ipv6.conf.all.forwarding", 1)
