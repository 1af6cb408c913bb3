#include "common/model.h"

#include <algorithm>

namespace lastflop {

int64_t Model::num_dense_layers() const {
  return std::count(layer_kinds.begin(), layer_kinds.end(), LayerKind::kDense);
}

}  // namespace lastflop
