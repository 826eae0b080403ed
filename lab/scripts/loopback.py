"""Web servers of the scripts, on the loopback address."""

import contextlib
import http.server
import sys
import threading


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # A client that ends leaves connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def served(handler):
    """Serves with this class of handlers while the block runs; gives the address without a path."""
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
