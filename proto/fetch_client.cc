#include "proto/fetch_client.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/channel_client.h"
#include "proto/codec.h"

namespace lastflop {

absl::StatusOr<CampaignResults> FetchCampaign(v1::CampaignService::StubInterface& stub,
                                              const std::string& campaign_id,
                                              const std::string& token) {
  const std::string what =
      campaign_id.empty() ? "fetch the campaign" : absl::StrCat("fetch campaign ", campaign_id);
  grpc::ClientContext context;
  AddToken(token, context);
  v1::FetchRequest request;
  request.set_campaign_id(campaign_id);
  std::unique_ptr<grpc::ClientReaderInterface<v1::FetchPiece>> reader =
      stub.Fetch(&context, request);
  CampaignResults results;
  absl::Status broken;
  v1::FetchPiece piece;
  while (reader->Read(&piece)) {
    if (broken = AppendPiece(piece, results); !broken.ok()) {
      context.TryCancel();
      break;
    }
  }
  const grpc::Status status = reader->Finish();
  if (!broken.ok()) {
    return absl::Status(broken.code(), absl::StrCat(what, ": ", broken.message()));
  }
  if (!status.ok()) {
    return FromGrpcStatus(status, what);
  }
  if (results.campaign_id.empty()) {
    return absl::InternalError(absl::StrCat(what, ": it has no header"));
  }
  return results;
}

void AddToken(const std::string& token, grpc::ClientContext& context) {
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

}  // namespace lastflop
