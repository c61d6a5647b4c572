"""The API server inside other network namespaces: each has it on its own 127.0.0.1, at the same port
and so under the same URL and certificate."""

import asyncio
import threading

PIECE = 1 << 16


async def _pump(reader, writer):
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()  # the other side learns of it as we did


class Relay:
    def __init__(self, port):
        """To 127.0.0.1:port where this process is."""
        self.port = port
        self.ends, self.joined = set(), True
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def add(self, listener):
        """Accepts on a listening socket, which may be another namespace's, until close()."""
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accepted, sock=listener),
                                         self.loop).result()

    async def _accepted(self, reader, writer):
        try:
            if not self.joined:
                raise ConnectionError
            to = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, to[1]}
        self.ends |= ends
        try:
            await asyncio.gather(_pump(reader, to[1]), _pump(to[0], writer))
        except asyncio.CancelledError:
            pass  # by close(); a task that ends so is reported by asyncio as a fault
        finally:
            self.ends -= ends
            for end in ends:
                end.close()

    def cut(self):
        """Ends all connections and lets no new one through, until join()."""
        async def cut():
            self.joined = False
            for end in self.ends:
                end.transport.abort()
        asyncio.run_coroutine_threadsafe(cut(), self.loop).result()

    def join(self):
        self.joined = True

    def close(self):
        self.loop.call_soon_threadsafe(self._end)
        self.thread.join()
        self.loop.close()

    def _end(self):
        """Of all tasks; the loop stops when they have noticed."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self.loop.stop())
