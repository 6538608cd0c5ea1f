"""A server with real HTTP and real child processes that misbehaves on demand; run by path with flags."""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--startup-seconds", type=float, default=0.0)
parser.add_argument("--dies-at-startup", help="a line for the log, then exit code 3")
parser.add_argument("--never-healthy", action="store_true")
parser.add_argument("--short-by", type=int, default=0, help="tokens that /generate leaves out")
parser.add_argument("--ignores-term", action="store_true")
parser.add_argument("--setsid-child", action="store_true", help="a child that leaves session and process group")
parser.add_argument("--gpu-memory-mib", type=int, default=0, help="memory to hold on the first visible GPU")
options = parser.parse_known_args()[0]

hanging = threading.Event()


def hold_gpu_memory(mebibytes: int) -> None:
    """Allocate through the driver's own interface, which needs no package."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, device, memory = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
    for status in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mebibytes << 20)),
    ):
        assert status == 0, f"CUDA driver error {status}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the log for what tests look for."""

    def reply(self, status: int, body: object) -> None:
        """Send JSON."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        """Answer, or misbehave when asked to."""
        url = urlparse(self.path)
        if url.path == "/exit":
            os._exit(int(parse_qs(url.query)["code"][0]))
        if url.path == "/hang":
            hanging.set()
        elif hanging.is_set():
            time.sleep(3600)
        if url.path == "/health":
            self.reply(503 if options.never_healthy else 200, {})
        elif url.path == "/environment":
            self.reply(200, dict(os.environ))
        elif url.path == "/server_info":
            self.reply(200, {"version": "minimal", "graphs": {"decode": {"max_bs": 8}}, "arguments": sys.argv[1:]})
        else:
            self.reply(200, {})

    def do_POST(self) -> None:
        """Generate as many tokens as asked for, less what the flags leave out."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if hanging.is_set():
            time.sleep(3600)
        tokens = body["sampling_params"]["max_new_tokens"] - options.short_by
        self.reply(200, {"output_ids": [0] * tokens, "meta_info": {"completion_tokens": tokens}})


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


print("minimal server, pid", os.getpid(), flush=True)
if options.ignores_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "3600"])
if options.setsid_child:
    subprocess.Popen(["sleep", "3601"], start_new_session=True)
if options.gpu_memory_mib:
    hold_gpu_memory(options.gpu_memory_mib)
time.sleep(options.startup_seconds)
if options.dies_at_startup:
    sys.exit(print(options.dies_at_startup, flush=True) or 3)
Server(("127.0.0.1", options.port), Handler).serve_forever()
