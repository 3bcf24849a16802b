/* A driver library with one GPU, so that the real nvidia-ml-py can be run without a driver. Built by the tests
 * that need it; what it does not define the real library reports as missing, as an old driver would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define NOT_SUPPORTED 3
#define TIMEOUT 10

typedef void *device_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_t;
typedef struct { unsigned long long reference, violation; } violation_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; } value_t;
typedef struct { unsigned id, scope; long long at, latency; int type, result; value_t value; } field_t;
typedef struct { device_t device; unsigned long long type, data; unsigned gi, ci; } event_t;
typedef struct { unsigned id; int result; double value; char *names[3]; } metric_t;
typedef struct { unsigned version, count; int *before, *after; metric_t metrics[1]; } gpm_t;

static int gpu;
static int events = 2;
static unsigned long long millijoules = 5000000;

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "made up"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "590.48.01"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) { *device = &gpu; return OK; }
int nvmlDeviceGetUUID(device_t device, char *text, unsigned size) { snprintf(text, size, "GPU-real"); return OK; }
int nvmlDeviceGetIndex(device_t device, unsigned *index) { *index = 0; return OK; }
int nvmlDeviceGetName(device_t device, char *text, unsigned size) { snprintf(text, size, "NVIDIA C"); return OK; }
int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
  memset(pci, 0, sizeof *pci);
  strcpy(pci->bus_id, "00000000:3B:00.0");
  return OK;
}
int nvmlDeviceGetUtilizationRates(device_t device, utilization_t *rates) {
  rates->gpu = 40;
  rates->memory = 25;
  return OK;
}
int nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts) { *milliwatts = 250500; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *energy) {
  *energy = millijoules += 1000;
  return OK;
}
int nvmlDeviceGetTemperature(device_t device, int sensor, unsigned *celsius) { *celsius = 61; return OK; }
int nvmlDeviceGetClockInfo(device_t device, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1410 : 2619; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *mask) { *mask = 0x4; return OK; }
int nvmlDeviceGetViolationStatus(device_t device, int policy, violation_t *time) {
  time->violation = 1000000000ULL * (policy + 1);
  return OK;
}
int nvmlDeviceGetTotalEccErrors(device_t device, int kind, int counter, unsigned long long *count) {
  *count = kind ? 2 : 7;
  return OK;
}
int nvmlDeviceGetRemappedRows(device_t device, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
  *c = 3; *u = 1; *pending = 1; *failed = 0;
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device_t device, memory_t *memory) {
  memory->total = 80; memory->reserved = 2; memory->free = 58; memory->used = 20;
  return OK;
}
int nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields) {
  for (int i = 0; i < count; i++) {
    fields[i].result = fields[i].id == 82 ? OK : NOT_SUPPORTED;
    fields[i].type = 1;
    fields[i].value.u = 70;
  }
  return OK;
}
int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) { return NOT_SUPPORTED; }
int nvmlEventSetCreate(device_t *set) { *set = &events; return OK; }
int nvmlEventSetFree(device_t set) { return OK; }
int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, device_t set) { return OK; }
int nvmlEventSetWait_v2(device_t set, event_t *event, unsigned timeout) {
  if (!events) return TIMEOUT;
  events--;
  event->device = &gpu;
  event->type = 8;
  event->data = 31;
  return OK;
}
int nvmlGpmQueryDeviceSupport(device_t device, unsigned *support) { support[1] = 1; return OK; }
int nvmlGpmSampleAlloc(int **sample) { *sample = calloc(1, sizeof(int)); return OK; }
int nvmlGpmSampleFree(int *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(device_t device, int *sample) { static int number; *sample = ++number; return OK; }
int nvmlGpmMetricsGet(gpm_t *asked) {
  if (asked->version != 1 || *asked->after != *asked->before + 1) return NOT_SUPPORTED;
  for (unsigned i = 0; i < asked->count; i++) {
    asked->metrics[i].result = OK;
    asked->metrics[i].value = asked->metrics[i].id;
  }
  return OK;
}
