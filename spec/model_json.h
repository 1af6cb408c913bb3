#pragma once

#include <string>

#include "common/model.h"

// A model as `lastflop model FILE` shows it.
namespace lastflop {

// The document of `lastflop model FILE -o json`, for scripts: every size under the name that the
// project has for it, `bytes` as the config stores the weights, `layers` as runs of one kind. A
// number that the model does not have is null. Ends with a line break.
std::string ModelToJsonDocument(const Model& model);

// The same for people: one `name  value` line each, then what was assumed and what is not modelled.
std::string ModelToTable(const Model& model);

}  // namespace lastflop
