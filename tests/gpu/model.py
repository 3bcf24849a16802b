"""A model of the GPU check: takes memory when it is loaded, and works for as many seconds as a request says.

One program for all models; the parameters in config.pbtxt tell them apart. It writes what it knows itself of its
memory and work to NAME.json in $GPU_CHECK_NUMBERS. It runs inside Triton's Python backend and imports none of ours.
"""

import ctypes
import json
import os
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils

# Keeps every multiprocessor busy until `nanoseconds` have passed, and stores how long that was.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 nanoseconds, .param .u64 result)
{
  .reg .pred %more;
  .reg .u64 %start, %now, %spent, %wanted, %result;
  ld.param.u64 %wanted, [nanoseconds];
  ld.param.u64 %result, [result];
  cvta.to.global.u64 %result, %result;
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %spent, %now, %start;
  setp.lt.u64 %more, %spent, %wanted;
  @%more bra again;
  st.global.u64 [%result], %spent;
  ret;
}
\0"""


class Torch:
    """The GPU through PyTorch."""

    def __init__(self):
        import torch

        self.torch = torch
        self.name = f"torch {torch.__version__}"

    def allocate(self, size):
        held = self.torch.empty(size, dtype=self.torch.uint8, device="cuda:0")
        held.fill_(1)
        self.held = held
        self.torch.cuda.synchronize()

    def work(self, seconds):
        a = self.torch.rand(4096, 4096, device="cuda:0", dtype=self.torch.bfloat16)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                b = a @ a
            self.torch.cuda.synchronize()
        if not bool(self.torch.isfinite(b).all()):
            raise RuntimeError("the matrix product is not finite")

    def memory(self):
        free, total = self.torch.cuda.mem_get_info(0)
        return {"free": free, "total": total}


class Driver:
    """The GPU through the driver's own C API: needs nothing but libcuda."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.name = "driver API"
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.ask("cuInit", 0)
        self.ask("cuDeviceGet", ctypes.byref(device), 0)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.ask("cuCtxSetCurrent", self.context)
        module, self.spin = ctypes.c_void_p(), ctypes.c_void_p()
        self.ask("cuModuleLoadData", ctypes.byref(module), PTX)
        self.ask("cuModuleGetFunction", ctypes.byref(self.spin), module, b"spin")
        self.result = self.taken(8)

    def ask(self, function, *arguments):
        code = getattr(self.lib, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            words = "CUDA out of memory: " if code == 2 else ""
            raise RuntimeError(f"{words}{function} returned {code} {(text.value or b'?').decode()}")

    def taken(self, size):
        address = ctypes.c_uint64()
        self.ask("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def allocate(self, size):
        self.held = self.taken(size)

    def work(self, seconds):
        self.ask("cuCtxSetCurrent", self.context)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            wanted = ctypes.c_uint64(int(min(left, 0.05) * 1e9))
            pointers = (ctypes.c_void_p * 2)(
                ctypes.cast(ctypes.byref(wanted), ctypes.c_void_p),
                ctypes.cast(ctypes.byref(self.result), ctypes.c_void_p),
            )
            # 1024 blocks of 256 threads: more than a card has room for at once would only queue.
            self.ask("cuLaunchKernel", self.spin, 1024, 1, 1, 256, 1, 1, 0, None, pointers, None)
            self.ask("cuCtxSynchronize")
            spent = ctypes.c_uint64()
            self.ask("cuMemcpyDtoH_v2", ctypes.byref(spent), self.result, ctypes.c_size_t(8))
            if spent.value < wanted.value:
                raise RuntimeError(f"the kernel ran for {spent.value} ns instead of {wanted.value}")

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ask("cuCtxSetCurrent", self.context)
        self.ask("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {"free": free.value, "total": total.value}


class Host:
    """No GPU: the same with the processor's memory, so that the rest of the check runs."""

    name = "no GPU"

    def allocate(self, size):
        self.held = np.empty(size, dtype=np.uint8)

    def work(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            np.sqrt(np.ones(10_000)).sum()
            time.sleep(0.02)

    def memory(self):
        return {}


DEVICES = {"torch": Torch, "driver": Driver, "none": Host}


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.name, self.bytes = args["model_name"], int(parameters["bytes"]["string_value"])
        self.device = DEVICES[os.environ["GPU_CHECK_DEVICE"]]()
        self.seconds = 0.0
        self.device.allocate(self.bytes)
        self.note()

    def execute(self, requests):
        responses = []
        for request in requests:
            wanted = float(pb_utils.get_input_tensor_by_name(request, "SECONDS").as_numpy().reshape(-1)[0])
            began = time.monotonic()
            self.device.work(wanted)
            spent = time.monotonic() - began
            self.seconds += spent
            self.note()
            # This Triton is built for numpy 1 and misreads the sizes of an array of numpy 2.
            tensor = pb_utils.Tensor if np.__version__ < "2" else pb_utils.Tensor.from_dlpack
            output = tensor("SPENT", np.array([spent], dtype=np.float32))
            responses.append(pb_utils.InferenceResponse([output]))
        return responses

    def note(self):
        path = os.path.join(os.environ["GPU_CHECK_NUMBERS"], f"{self.name}.json")
        numbers = {
            "pid": os.getpid(),
            "device": self.device.name,
            "python": f"{sys.version.split()[0]} at {sys.prefix}, numpy {np.__version__}",
            "bytes": self.bytes,
            "seconds": self.seconds,
            **self.device.memory(),
        }
        with open(f"{path}.new", "w") as file:
            json.dump(numbers, file)
        os.replace(f"{path}.new", path)
