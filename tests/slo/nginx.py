"""Run a real nginx before a real Triton, whose log has for each request what ingress-nginx would expose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.loopback import free_ports, started
from support.tools import ROOT

NGINX = ROOT / ".cache" / "nginx" / "usr" / "sbin" / "nginx"
CONFIGURATION = """\
daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
  log_format requests escape=json
    '{{"path": "$rule", "ingress": "$model", "status": "$status", "time": "$request_time"}}';
  access_log {folder}/requests.log requests;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  proxy_http_version 1.1;
  server {{
    listen 127.0.0.1:{port};
    location = /ready {{ access_log off; return 200; }}
    location ~ ^(?<rule>/v2/models/(?<model>gone))/ {{ proxy_pass {gone}; }}
    location ~ ^(?<rule>/v2/models/(?<model>stuck))/ {{ proxy_pass {upstream}; proxy_read_timeout 1s; }}
    location ~ ^(?<rule>/v2/models/(?<model>[a-z]+))/ {{ proxy_pass {upstream}; }}
  }}
}}
"""


@contextmanager
def nginx(upstream: str, directory: Path, gone: str = "") -> Iterator[tuple[str, Path]]:
    """Run an nginx and yield its URL and its log.

    The model `stuck` has a second to answer; requests to `gone` go to that URL, where by default nothing listens.
    """
    port, nobody = free_ports(2)
    configuration = CONFIGURATION.format(
        folder=directory, port=port, upstream=upstream, gone=gone or f"http://127.0.0.1:{nobody}"
    )
    (directory / "nginx.conf").write_text(configuration)
    log = directory / "requests.log"
    log.touch()
    command = (NGINX, "-p", directory, "-c", "nginx.conf", "-e", "error.log")
    url = f"http://127.0.0.1:{port}"
    with started(command, f"{url}/ready", directory / "nginx.log"):
        yield url, log
