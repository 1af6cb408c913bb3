#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model.h"
#include "kernels/cpu/weights_random.h"
#include "step/layout.h"
#include "step/op.h"

namespace lastflop {

// How a weight lies in memory: panels for GEMMs, plain bf16 rows for tables, gains and biases.
enum class WeightForm { kPacked, kRows };

// Which numbers of the model a rank's weight is. Weights of other ranks, formats and slices come
// from the same tensor of true values, so that every plan runs the same model.
struct WeightPlace {
  Weight weight = Weight::kNone;
  int layer = -1;
  bool is_bias = false;
  WeightForm form = WeightForm::kPacked;
  WeightStorage storage;
  int64_t num_matrices = 1;
  std::vector<int64_t> part_rows;
  int64_t cols = 0;
  WeightSlice slice;

  // Equal for equal contents.
  std::string Key() const;
};

// What data is made from.
struct WeightData {
  uint64_t seed = 0;
  bool zeros = false;  // Labelled zero data.
};

// The weights that `weight` of `layer` is on a rank, stored in `storage`; InvalidArgument for a
// weight that is none.
absl::StatusOr<WeightPlace> PlaceOfWeight(const Model& model, const Layout& layout, Weight weight,
                                          int layer, const WeightStorage& storage,
                                          const WeightData& data);

// The embedding table as plain rows, for the look-up.
WeightPlace PlaceOfEmbedding(const Model& model, const EmbeddingShape& shape,
                             const WeightData& data);

// The gain of a norm: `size` values.
WeightPlace PlaceOfGain(Weight weight, int layer, int64_t size, const WeightData& data);

// The bias that goes with a projection's `place`.
WeightPlace PlaceOfBias(const WeightPlace& place);

}  // namespace lastflop
