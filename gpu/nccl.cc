#include "gpu/nccl.h"

#include <nccl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/shared_library.h"

namespace lastflop {

struct Nccl::Api {
  decltype(ncclGetVersion)* get_version = nullptr;
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRank)* init_rank = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommGetAsyncError)* get_async_error = nullptr;
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclAllGather)* all_gather = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;

  absl::Status LoadFrom(const SharedLibrary& library) {
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGetVersion", get_version));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclGetUniqueId", get_unique_id));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommInitRank", init_rank));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommAbort", abort));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclCommGetAsyncError", get_async_error));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclAllReduce", all_reduce));
    LASTFLOP_RETURN_IF_ERROR(library.Load("ncclAllGather", all_gather));
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
                                                   const Broadcast& broadcast) {
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
  LASTFLOP_RETURN_IF_ERROR(made->api_->Status(
      made->api_->init_rank(&communicator, num_ranks, id, rank), "meeting the other ranks"));
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

absl::Status Nccl::AsyncStatus() {
  ncclResult_t result = ncclSuccess;
  LASTFLOP_RETURN_IF_ERROR(api_->Status(api_->get_async_error(Communicator(communicator_), &result),
                                        "asking for errors"));
  return result == ncclInProgress ? absl::OkStatus() : api_->Status(result, "a collective");
}

}  // namespace lastflop
