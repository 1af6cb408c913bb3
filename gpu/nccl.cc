#include "gpu/nccl.h"

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/shared_library.h"

namespace lastflop {

struct Nccl::Api {
  decltype(ncclGetVersion)* get_version = nullptr;
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRankConfig)* init_rank = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommGetAsyncError)* get_async_error = nullptr;
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclAllGather)* all_gather = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;

  absl::Status LoadFrom(const SharedLibrary& library) {
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGetVersion", get_version));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGetUniqueId", get_unique_id));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommInitRankConfig", init_rank));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommAbort", abort));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommGetAsyncError", get_async_error));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclAllReduce", all_reduce));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclAllGather", all_gather));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGroupStart", group_start));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGroupEnd", group_end));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclSend", send));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclRecv", receive));
    return library.Load("ncclGetErrorString", error_string);
  }

  absl::Status Status(ncclResult_t result, absl::string_view doing) const {
    if (result == ncclSuccess) {
      return absl::OkStatus();
    }
    const std::string message = absl::StrCat(doing, ": NCCL: ", error_string(result));
    return result == ncclRemoteError ? absl::AbortedError(message) : absl::InternalError(message);
  }
};

namespace {

// Sets a variable of the environment, and puts back what was there.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (value.empty()) {
      return;
    }
    if (const char* before = std::getenv(name); before != nullptr) {
      before_ = before;
    }
    is_set_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (is_set_) {
      before_.has_value() ? setenv(name_, before_->c_str(), 1) : unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
  bool is_set_ = false;
};

absl::Status CheckTuning(const NcclTuning& tuning) {
  const char* nvls = std::getenv("NCCL_NVLS_ENABLE");
  if (tuning.algorithm.rfind("nvls", 0) == 0 && nvls != nullptr && std::string(nvls) == "0") {
    return absl::UnimplementedError(
        absl::StrCat("collectives.nccl.algorithm=", tuning.algorithm,
                     ": NVLink multicast is off in this process (NCCL_NVLS_ENABLE=0)"));
  }
  return absl::OkStatus();
}

ncclComm_t Communicator(void* pointer) { return static_cast<ncclComm_t>(pointer); }

}  // namespace

Nccl::Nccl(std::unique_ptr<Api> api, std::string path)
    : api_(std::move(api)), path_(std::move(path)) {}

Nccl::~Nccl() {
  // Not destroy: that waits for the other ranks, which may be gone.
  if (communicator_ != nullptr) {
    api_->abort(Communicator(communicator_));
  }
}

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Create(int rank, int num_ranks,
                                                   const Broadcast& broadcast,
                                                   const NcclTuning& tuning) {
  LASTFLOP_RETURN_IF_ERROR(CheckTuning(tuning));
  LASTFLOP_ASSIGN_OR_RETURN(const SharedLibrary library,
                            SharedLibrary::Open("NCCL", {"libnccl.so.2"}));
  auto api = std::make_unique<Api>();
  LASTFLOP_RETURN_IF_ERROR(api->LoadFrom(library));
  std::unique_ptr<Nccl> made(new Nccl(std::move(api), library.path()));
  LASTFLOP_RETURN_IF_ERROR(
      made->api_->Status(made->api_->get_version(&made->version_), "asking for the version"));
  ncclUniqueId id{};
  if (rank == 0) {
    LASTFLOP_RETURN_IF_ERROR(made->api_->Status(made->api_->get_unique_id(&id), "making an id"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::string heard,
                            broadcast(std::string(id.internal, sizeof(id.internal))));
  if (heard.size() != sizeof(id.internal)) {
    return absl::InternalError("a unique id of another size");
  }
  std::memcpy(id.internal, heard.data(), heard.size());
  ncclComm_t communicator = nullptr;
  const ScopedVariable algorithm("NCCL_ALGO", tuning.algorithm);
  const ScopedVariable protocol("NCCL_PROTO", tuning.protocol);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (tuning.channels > 0) {
    config.minCTAs = static_cast<int>(tuning.channels);
    config.maxCTAs = static_cast<int>(tuning.channels);
  }
  LASTFLOP_RETURN_IF_ERROR(
      made->api_->Status(made->api_->init_rank(&communicator, num_ranks, id, rank, &config),
                         "meeting the other ranks"));
  made->communicator_ = communicator;
  return made;
}

absl::Status Nccl::AllReduce(void* data, int64_t elements, cudaStream_t stream) {
  return api_->Status(api_->all_reduce(data, data, static_cast<size_t>(elements), ncclBfloat16,
                                       ncclSum, Communicator(communicator_), stream),
                      "all-reduce");
}

absl::Status Nccl::AllGather(const void* own, void* all, int64_t bytes, cudaStream_t stream) {
  return api_->Status(api_->all_gather(own, all, static_cast<size_t>(bytes), ncclUint8,
                                       Communicator(communicator_), stream),
                      "all-gather");
}

absl::Status Nccl::Exchange(std::span<const Exchanged> parts, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(api_->Status(api_->group_start(), "an exchange"));
  ncclResult_t result = ncclSuccess;
  for (const Exchanged& part : parts) {
    if (result == ncclSuccess && part.send_bytes > 0) {
      result = api_->send(part.send, static_cast<size_t>(part.send_bytes), ncclUint8, part.peer,
                          Communicator(communicator_), stream);
    }
    if (result == ncclSuccess && part.receive_bytes > 0) {
      result = api_->receive(part.receive, static_cast<size_t>(part.receive_bytes), ncclUint8,
                             part.peer, Communicator(communicator_), stream);
    }
  }
  const ncclResult_t ended = api_->group_end();  // Also after an error: a group is the thread's.
  return api_->Status(result != ncclSuccess ? result : ended, "an exchange");
}

absl::Status Nccl::AsyncStatus() {
  ncclResult_t result = ncclSuccess;
  LASTFLOP_RETURN_IF_ERROR(api_->Status(api_->get_async_error(Communicator(communicator_), &result),
                                        "asking for errors"));
  return result == ncclInProgress ? absl::OkStatus() : api_->Status(result, "a collective");
}

}  // namespace lastflop
