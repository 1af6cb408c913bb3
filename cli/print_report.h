#pragma once

#include <string>

#include "cli/commands.h"
#include "common/campaign_results.h"
#include "planner/ranking.h"

namespace lastflop {

// `ranking` in `format` (a ReportFormat word), in colour and width for io.out when it is for a
// terminal and not for a file.
std::string RankingText(const Ranking& ranking, const std::string& format, bool is_for_file,
                        const Io& io);

// RankingText() on io.out.
void PrintRanking(const Ranking& ranking, const std::string& format, Io& io);

// The ranking of `results`, ordered `by` (a RankingOrder word).
Ranking RankingBy(const CampaignResults& results, const std::string& by);

// The ranked report of `results` on io.out in `format` (a ReportFormat word), ordered `by` (a
// RankingOrder word); both are checked by the parser of the command line.
void PrintReport(const CampaignResults& results, const std::string& format, const std::string& by,
                 Io& io);

}  // namespace lastflop
