#include "gpu/cupti.h"

#include <cupti.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/shared_library.h"

namespace lastflop {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kBufferAlignment = 8;  // CUPTI documentation, "Activity Buffers".
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

struct Api {
  decltype(cuptiActivityRegisterCallbacks)* register_callbacks = nullptr;
  decltype(cuptiActivityEnable)* enable = nullptr;
  decltype(cuptiActivityDisable)* disable = nullptr;
  decltype(cuptiActivityFlushAll)* flush_all = nullptr;
  decltype(cuptiActivityGetNextRecord)* get_next_record = nullptr;
  decltype(cuptiGetResultString)* get_result_string = nullptr;

  absl::Status LoadFrom(const SharedLibrary& library) {
    LASTFLOP_RETURN_IF_ERROR(library.Load("cuptiActivityRegisterCallbacks", register_callbacks));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cuptiActivityEnable", enable));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cuptiActivityDisable", disable));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cuptiActivityFlushAll", flush_all));
    LASTFLOP_RETURN_IF_ERROR(library.Load("cuptiActivityGetNextRecord", get_next_record));
    return library.Load("cuptiGetResultString", get_result_string);
  }

  absl::Status Status(CUptiResult result, absl::string_view doing) const {
    if (result == CUPTI_SUCCESS) {
      return absl::OkStatus();
    }
    const char* text = nullptr;
    get_result_string(result, &text);
    return absl::FailedPreconditionError(
        absl::StrCat(doing, ": CUPTI: ", text == nullptr ? "unknown" : text));
  }
};

// CUPTI's callbacks carry no pointer of ours: what they fill is the process's, under its lock.
Api api;
std::mutex records_mutex;
std::vector<DeviceActivity> records;

void Add(uint64_t start, uint64_t end, const char* name) {
  const std::lock_guard<std::mutex> lock(records_mutex);
  records.push_back({.start_ns = start, .end_ns = end, .name = name == nullptr ? "" : name});
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // As many as fit.
}

void CUPTIAPI TakeBuffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer,
                         size_t /*size*/, size_t valid_size) {
  CUpti_Activity* record = nullptr;
  while (valid_size > 0 && api.get_next_record(buffer, valid_size, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        Add(kernel->start, kernel->end, kernel->name);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        Add(copy->start, copy->end, "memcpy");
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        Add(fill->start, fill->end, "memset");
        break;
      }
      default:
        break;
    }
  }
  std::free(buffer);
}

absl::Status LoadOnce() {
  static const absl::Status loaded = []() -> absl::Status {
    LASTFLOP_ASSIGN_OR_RETURN(const SharedLibrary library,
                              SharedLibrary::Open("CUPTI", {"libcupti.so.13"}));
    LASTFLOP_RETURN_IF_ERROR(api.LoadFrom(library));
    return api.Status(api.register_callbacks(GiveBuffer, TakeBuffer), "starting a trace");
  }();
  return loaded;
}

}  // namespace

absl::StatusOr<std::vector<DeviceActivity>> TraceDevice(const std::function<absl::Status()>& work) {
  LASTFLOP_RETURN_IF_ERROR(LoadOnce());
  {
    const std::lock_guard<std::mutex> lock(records_mutex);
    records.clear();
  }
  absl::Status status = absl::OkStatus();
  for (const CUpti_ActivityKind kind : kKinds) {
    if (status.ok()) {
      status = api.Status(api.enable(kind), "tracing");
    }
  }
  if (status.ok()) {
    status = work();
  }
  const absl::Status flushed =
      api.Status(api.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "reading a trace");
  for (const CUpti_ActivityKind kind : kKinds) {
    api.disable(kind);
  }
  LASTFLOP_RETURN_IF_ERROR(status);
  LASTFLOP_RETURN_IF_ERROR(flushed);
  const std::lock_guard<std::mutex> lock(records_mutex);
  std::sort(records.begin(), records.end(), [](const DeviceActivity& a, const DeviceActivity& b) {
    return a.start_ns < b.start_ns;
  });
  return std::move(records);
}

}  // namespace lastflop
