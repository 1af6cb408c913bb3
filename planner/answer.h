#pragma once

#include <string>

#include "planner/ranking.h"

namespace lastflop {

// The answer to the campaign's question in one sentence, from what is in `ranking` (its answer is
// not read). It promises nothing that is not proven: when no effect is `faster` it says that
// nothing beats the baseline beyond noise, and what is missing.
std::string AnswerOf(const Ranking& ranking);

}  // namespace lastflop
