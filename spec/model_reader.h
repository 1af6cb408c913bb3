#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model.h"

// Reads what a model is from the files that come with it.
namespace lastflop {

// A model from the text of a Hugging Face config.json, as published: a language model alone, or the
// `text_config`, `language_config` or the like of a larger one. `file_name` is for messages and for
// the model's name.
//
// InvalidArgument, as FILE:LINE:COLUMN: path: message, for what is not JSON, for keys that stand
// twice, for sizes out of range, for families that lastflop does not know, and for models without
// experts. What a config says and lastflop does not run is no error: it stands in `not_modelled`;
// what it leaves open and lastflop takes as usual stands in `assumed`.
absl::StatusOr<Model> ReadModelConfig(absl::string_view text, absl::string_view file_name);

// ReadModelConfig of a file, or ReadModelYaml where it is called .yaml or .yml; errors of
// ReadTextFile besides.
absl::StatusOr<Model> ReadModelFile(const std::string& path);

// "Kimi-K2.5" of "models/Kimi-K2.5.config.json"; the folder's name for a plain config.json.
std::string ModelNameOf(absl::string_view file_name);

}  // namespace lastflop
