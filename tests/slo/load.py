"""Send planned requests to the sleeper from a process of its own, and print how long each took.

Reads JSON lines {at, model, sleeps, again} from standard input: seconds from the start, the rows of the request,
and the rows of a retry for an answer slower than RETRY_SECONDS. Prints JSON lines
[model, seconds it slept, seconds it took].
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

RETRY_SECONDS = 0.2


def main(url: str, start: float) -> None:
    """Follow the plan from `start` (Unix seconds); a request that is due does not wait for the one before it."""
    threads: list[threading.Thread] = []
    for line in sys.stdin:
        plan = json.loads(line)
        time.sleep(max(0.0, start + plan["at"] - time.time()))
        threads.append(threading.Thread(target=_send, args=(url, plan)))
        threads[-1].start()
        if len(threads) > 200:
            threads = [thread for thread in threads if thread.is_alive()]
    for thread in threads:
        thread.join()


_free: list[http.client.HTTPConnection] = []
_out = threading.Lock()


def _send(url: str, plan: dict[str, object]) -> None:
    sleeps = plan["sleeps"]
    while sleeps:
        try:
            connection = _free.pop()
        except IndexError:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        took = _ask(connection, str(plan["model"]), sleeps)  # type: ignore[arg-type]
        _free.append(connection)
        with _out:
            print(json.dumps([plan["model"], sum(sleeps), took]), flush=True)  # type: ignore[call-overload]
        sleeps = plan.pop("again", None) if took > RETRY_SECONDS else None


def _ask(connection: http.client.HTTPConnection, model: str, sleeps: list[float]) -> float:
    data = [value for sleep in sleeps for value in (sleep, 0.0)]
    tensor = {"name": "X", "shape": [len(sleeps), 2], "datatype": "FP64", "data": data}
    body = json.dumps({"inputs": [tensor]}).encode()
    started = time.perf_counter()
    connection.request("POST", f"/v2/models/{model}/infer", body)
    with connection.getresponse() as response:
        response.read()
        took = time.perf_counter() - started
        assert 200 == response.status, response.status
    return took


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
