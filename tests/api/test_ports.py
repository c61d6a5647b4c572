"""The ports that the test's servers get are theirs alone."""

import errno
import socket

import pytest

from apiserver import hold_port


def test_a_held_port_is_for_who_knows_it():
    with hold_port() as held:
        where = held.getsockname()
        for _ in range(2):      # a server that ends and starts again
            with socket.create_server(where) as server, socket.create_connection(where):
                server.accept()[0].close()
            with socket.socket() as other, pytest.raises(OSError) as refused:
                other.bind(where)
            assert refused.value.errno == errno.EADDRINUSE
