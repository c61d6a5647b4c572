"""relay.py PORT NETNS...: carries connections to 127.0.0.1:PORT of each network namespace to the
same address and port of the namespace it is started in. Prints "ready" when all listen."""

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000
LOOPBACK = "127.0.0.1"
libc = ctypes.CDLL(None, use_errno=True)


def setns(fd):
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def listener(path, port):
    home, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(path, os.O_RDONLY)
    setns(there)
    try:
        return socket.create_server((LOOPBACK, port))
    finally:
        setns(home)
        os.close(home)
        os.close(there)


async def copy(reader, writer):
    """Ends with either side, however it ends."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(port, paths):
    async def relay(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:         # as if nobody listened here either
            writer.close()
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    servers = [await asyncio.start_server(relay, sock=listener(path, port)) for path in paths]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


asyncio.run(serve(int(sys.argv[1]), sys.argv[2:]))
