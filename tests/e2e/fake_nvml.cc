// A driver library of a host with two GPUs, as far as lastflop asks it. LASTFLOP_NVML_LIBRARY names
// it.
#include <cstdio>
#include <cstring>

namespace {

char devices[2];

int say(char* text, unsigned size, const char* what) {
  std::snprintf(text, size, "%s", what);
  return 0;
}

int tell(unsigned* value, unsigned what) {
  *value = what;
  return 0;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return tell(count, 2); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = devices + index;
  return index < 2 ? 0 : 2;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return say(text, size, "580.00"); }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 99000;
  return 0;
}
int nvmlDeviceGetName(void* /*device*/, char* text, unsigned size) {
  return say(text, size, "NVIDIA H200");
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return say(text, size, device == devices ? "GPU-aaaa-0" : "GPU-bbbb-1");
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, unsigned long long* memory) {
  std::memset(memory, 0, 3 * sizeof(*memory));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* /*device*/, void* /*info*/) {
  return 3;  // Not supported.
}
int nvmlDeviceGetClockInfo(void* /*device*/, unsigned /*clock*/, unsigned* value) {
  return tell(value, 1980);
}
int nvmlDeviceGetPowerUsage(void* /*device*/, unsigned* value) { return tell(value, 100000); }
int nvmlDeviceGetEnforcedPowerLimit(void* /*device*/, unsigned* value) {
  return tell(value, 700000);
}
int nvmlDeviceGetTemperature(void* /*device*/, unsigned /*sensor*/, unsigned* value) {
  return tell(value, 40);
}
int nvmlDeviceGetCudaComputeCapability(void* /*device*/, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
}
