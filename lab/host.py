"""One machine of the lab: run things on it, change its interfaces."""

import subprocess

from . import netns


class Host:
    def __init__(self, lab, name):
        self.lab = lab
        self.name = name
        self.ns = lab.ns(name)
        self.spec = lab.topology.hosts.get(name)

    def run(self, *argv, **options):
        """Runs a command here; raises with what it said when it fails (check=False: does not)."""
        return netns.run(netns.exec_argv(self.ns, argv), **options)

    def out(self, *argv):
        """What a command here prints."""
        return self.run(*argv).stdout

    def popen(self, *argv, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        return subprocess.Popen(netns.exec_argv(self.ns, argv), env=netns.ENV, **options)

    def nft(self, text):
        """Loads nft commands in one transaction."""
        netns.run_in(self.ns, ["nft", "-f", "-"], stdin=text)

    def ip(self, *lines, family=None):
        """Each argument is one line for `ip -batch`."""
        netns.ip_batch(self.ns, lines, family)

    def sysctl(self, key, value=None):
        if value is not None:
            netns.set_sysctls(self.ns, {key: value})
        return netns.get_sysctl(self.ns, key)

    def flush_conntrack(self):
        self.run("conntrack", "-F", check=False)

    def conntrack(self, *arguments):
        """The lines of `conntrack -L` with the arguments given."""
        return self.run("conntrack", "-L", *arguments, check=False).stdout.splitlines()

    def has_link(self, name):
        return self.run("ip", "link", "show", "dev", name, check=False).returncode == 0

    def add_link(self, name, addresses, peer, peer_name, peer_addresses):
        """A veth pair to another host, up, with addresses on both ends."""
        other = self.lab.host(peer)
        self.ip(f"link add {name} type veth peer name {peer_name} netns {other.ns}")
        other.ip(*_address_lines(peer_name, peer_addresses), f"link set {peer_name} up")
        self.ip(*_address_lines(name, addresses), f"link set {name} up")

    def delete_link(self, name):
        self.ip(f"link del {name}")

    def change_address(self, link, old, new):
        """Both with their prefix length. A primary address takes its secondaries with it."""
        self.ip(f"addr del {old} dev {link}", *_address_lines(link, [new]))

    def set_mtu(self, link, mtu):
        self.ip(f"link set {link} mtu {mtu}")


def _address_lines(link, addresses):
    return [f"addr add {a} dev {link}" + (" nodad" if ":" in a else "") for a in addresses]
