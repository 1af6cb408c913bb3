#pragma once

#include <string>
#include <utility>

#include "coordinator/coordinator.h"
#include "lastflop/v1/campaign.grpc.pb.h"

namespace lastflop {

// Answers the command line. What only reads has a database connection of its own, so that no
// answer waits for a writer.
class CampaignServiceImpl : public v1::CampaignService::Service {
 public:
  // `token` is what every call must carry; "" lets everybody in. `coordinator` outlives this.
  CampaignServiceImpl(Coordinator& coordinator, std::string token)
      : coordinator_(coordinator), token_(std::move(token)) {}

  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Show(grpc::ServerContext* context, const v1::ShowRequest* request,
                    v1::ShowResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchEvent>* writer) override;
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override;
  grpc::Status Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                      v1::ResumeResponse* response) override;
  grpc::Status Fetch(grpc::ServerContext* context, const v1::FetchRequest* request,
                     grpc::ServerWriter<v1::FetchPiece>* writer) override;
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override;
  grpc::Status Logs(grpc::ServerContext* context, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogEntry>* writer) override;

 private:
  // Unauthenticated without the token.
  absl::Status Authorize(const grpc::ServerContext& context) const;
  // Checks the token, opens a reader and resolves the campaign.
  absl::StatusOr<std::pair<Database, std::string>> Begin(const grpc::ServerContext& context,
                                                         const std::string& reference) const;

  Coordinator& coordinator_;  // Outlives this.
  const std::string token_;
};

}  // namespace lastflop
