#pragma once

#include "common/campaign_results.h"
#include "planner/ranking.h"

namespace lastflop {

// A finished campaign's ranking with one of everything: faster, slower, undecided, lossy,
// per_batch, unsupported, failed; figures made up.
Ranking ExampleRanking();

// The campaign of field case H29: its name, id and texts try to break out of every format.
Ranking HostileRanking();

// `a<b>&"c', d=1+1` with a leading '=', a line break and `</SCRIPT>`.
extern const char kHostileName[];

// The results that an export shows beside ExampleRanking(): one trial with a good, a failed and a
// late attempt, and a sample that is no number.
CampaignResults ExampleResults();

}  // namespace lastflop
