#pragma once

#include <string>
#include <utility>

#include "coordinator/coordinator.h"
#include "lastflop/v1/worker.grpc.pb.h"

namespace lastflop {

// Takes workers' streams. Two threads a stream: one reads, one writes.
class WorkerServiceImpl : public v1::WorkerService::Service {
 public:
  // `token` is what a Hello must carry; "" lets everybody in. `coordinator` outlives this.
  WorkerServiceImpl(Coordinator& coordinator, std::string token)
      : coordinator_(coordinator), token_(std::move(token)) {}

  grpc::Status Connect(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override;

 private:
  Coordinator& coordinator_;  // Outlives this.
  const std::string token_;
};

}  // namespace lastflop
