#pragma once

#include <string>

#include "common/campaign_results.h"
#include "db/change.h"
#include "db/database.h"

namespace lastflop {

// A path in a fresh folder of its own, removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name);
  ~TemporaryFile();
  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string path_;
};

// A campaign `campaign_id` with a baseline trial t0000, a pending t0001 and a settled t0002.
CampaignResults SomeCampaign(const std::string& campaign_id);

// A report with every field set.
AttemptResult SomeReport(const std::string& attempt_id);

// A lease of t0001 in `launch` by w0 and w1.
NewAttempt SomeLease(const std::string& attempt_id, int launch);

// An open, migrated database that holds SomeCampaign("c1"). Aborts when it cannot.
Database DatabaseWithCampaign(const std::string& path);

}  // namespace lastflop
