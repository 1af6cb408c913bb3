#pragma once

#include <string>

#include "cli/commands.h"
#include "common/campaign_results.h"
#include "planner/ranking.h"

namespace lastflop {

// `ranking` on io.out in `format` (a ReportFormat word).
void PrintRanking(const Ranking& ranking, const std::string& format, Io& io);

// The ranked report of `results` on io.out in `format` (a ReportFormat word), ordered `by` (a
// RankingOrder word); both are checked by the parser of the command line.
void PrintReport(const CampaignResults& results, const std::string& format, const std::string& by,
                 Io& io);

}  // namespace lastflop
