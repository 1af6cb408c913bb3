#include "collectives/cuda/cuda_peer_memory.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"

namespace lastflop {
namespace {

// Smaller allocations may share a block of the driver's, and a handle names the whole block.
constexpr size_t kBlockBytes = size_t{2} << 20;

// What a rank tells the others of its memory.
struct MemoryCard {
  cudaIpcMemHandle_t handle;
  char pci_bus_id[32];
  int32_t is_filled;
};

// OK when this process' GPU can reach the one at `pci_bus_id`.
absl::Status CheckPeerAccess(const char* pci_bus_id, int peer_rank) {
  int self = 0;
  int peer = 0;
  int can_access = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&self), "asking for the device");
  if (cudaDeviceGetByPCIBusId(&peer, pci_bus_id) != cudaSuccess) {
    cudaGetLastError();  // Not a fault: the next launch must not find it.
    return absl::UnimplementedError(absl::StrCat("the GPU of rank ", peer_rank, " at ", pci_bus_id,
                                                 " is not visible to this process"));
  }
  if (peer == self) {
    return absl::OkStatus();
  }
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceCanAccessPeer(&can_access, self, peer),
                                "asking for peer access");
  return can_access != 0
             ? absl::OkStatus()
             : absl::UnimplementedError(absl::StrCat("no peer access from this GPU to rank ",
                                                     peer_rank, "'s at ", pci_bus_id));
}

absl::StatusOr<MemoryCard> MakeCard(const DeviceBuffer& own) {
  MemoryCard card = {};
  int device = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetPCIBusId(card.pci_bus_id, sizeof(card.pci_bus_id), device),
      "asking for the device's place");
  if (const cudaError_t error = cudaIpcGetMemHandle(&card.handle, own.data());
      error != cudaSuccess) {
    cudaGetLastError();
    return absl::UnimplementedError(absl::StrCat(
        "this host's driver shares no GPU memory between processes: ", cudaGetErrorString(error)));
  }
  card.is_filled = 1;
  return card;
}

// The first error of any rank, on every rank: the own one where there is one.
absl::Status Agree(Gang& gang, const absl::Status& own) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> codes,
                            gang.AllGather(static_cast<double>(own.raw_code())));
  LASTFLOP_RETURN_IF_ERROR(own);
  for (size_t r = 0; r < codes.size(); ++r) {
    if (codes[r] != 0) {
      return absl::Status(static_cast<absl::StatusCode>(static_cast<int>(codes[r])),
                          absl::StrCat("rank ", r, " has no peer memory"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPeerMemory>> CudaPeerMemory::Create(Gang& gang, size_t bytes) {
  LASTFLOP_ASSIGN_OR_RETURN(const Gang::SharedMemory exchange, gang.MapShared(sizeof(MemoryCard)));
  const auto self = static_cast<size_t>(gang.rank());
  absl::StatusOr<DeviceBuffer> own =
      DeviceBuffer::Create((bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  absl::Status status = own.status();
  if (status.ok()) {
    const absl::StatusOr<MemoryCard> card = MakeCard(*own);
    status = card.status();
    if (status.ok()) {
      std::memcpy(exchange.of_rank[self], &*card, sizeof(*card));
    }
  }
  LASTFLOP_RETURN_IF_ERROR(Agree(gang, status));
  std::unique_ptr<CudaPeerMemory> memory(new CudaPeerMemory(*std::move(own), gang.rank()));
  LASTFLOP_RETURN_IF_ERROR(Agree(gang, memory->Open(exchange)));
  return memory;
}

absl::Status CudaPeerMemory::Open(const Gang::SharedMemory& exchange) {
  of_rank_.assign(exchange.of_rank.size(), nullptr);
  of_rank_[static_cast<size_t>(self_)] = own_.data();
  for (int rank = 0; rank < static_cast<int>(of_rank_.size()); ++rank) {
    if (rank == self_) {
      continue;
    }
    MemoryCard card;
    std::memcpy(&card, exchange.of_rank[static_cast<size_t>(rank)], sizeof(card));
    LASTFLOP_RETURN_IF_ERROR(CheckPeerAccess(card.pci_bus_id, rank));
    void* mapped = nullptr;
    if (const cudaError_t error =
            cudaIpcOpenMemHandle(&mapped, card.handle, cudaIpcMemLazyEnablePeerAccess);
        error != cudaSuccess) {
      cudaGetLastError();
      return absl::UnimplementedError(
          absl::StrCat("mapping the GPU memory of rank ", rank, ": ", cudaGetErrorString(error)));
    }
    of_rank_[static_cast<size_t>(rank)] = static_cast<std::byte*>(mapped);
  }
  return absl::OkStatus();
}

CudaPeerMemory::~CudaPeerMemory() {
  for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
    if (of_rank_[rank] != nullptr && static_cast<int>(rank) != self_) {
      cudaIpcCloseMemHandle(of_rank_[rank]);
    }
  }
}

}  // namespace lastflop
