#pragma once

#include <cstdint>
#include <vector>

namespace lastflop {

// The time of a step of a pipeline from the times of its passes: one rule for the planner, which
// has estimates, and for the executor, which has measurements (docs/adr/pipeline-steps.md).
//
// Each stage works through the micro-batches in order; a pass begins when its stage is free and the
// stage before has handed it over. In decode a micro-batch's next pass through the first stage
// begins when its token is back: steps follow each other without the pipeline running empty, and
// the time of a step is what lies between two tokens of a sequence. In prefill a step begins with
// an empty pipeline and ends with the last micro-batch's first token.

// Whether the last stage returns tokens to the first: decode.
enum class PipelineEnd { kReturnsTokens, kRunsEmpty };

// [s][j]: the time of micro-batch j on stage s, without waiting for other stages. At least one of
// each, equally many of every stage.
using StagePasses = std::vector<std::vector<double>>;

// The time of a step whose passes are `passes`. Where tokens return, `filling` is the step that
// filled the pipeline before it, and the time is that between the ends of both on the last stage:
// with equal passes all later steps take as long. `filling` is empty where the pipeline runs empty.
double PipelineMicros(const StagePasses& filling, const StagePasses& passes);

// How many passes of each stage lie on the longest path of a step, where every pass of stage s
// takes stage_us[s]: their sum is PipelineMicros. Returning tokens: either all stages once (a token
// goes round) or the slowest one `micro_batches` times (it is never idle). Running empty: all
// stages once, then the slowest for the others.
std::vector<double> PassesOnPath(const std::vector<double>& stage_us, int64_t micro_batches,
                                 PipelineEnd end);

}  // namespace lastflop
