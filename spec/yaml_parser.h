#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"
#include "spec/diagnostics.h"
#include "spec/yaml_value.h"

namespace lastflop {

// What a document may take at most: an answer within a second whatever the file holds.
struct YamlLimits {
  size_t bytes = 4 << 20;          // Of the file.
  size_t nodes = 200'000;          // Values, after aliases are copied out.
  size_t copied_bytes = 16 << 20;  // Text, after aliases are copied out.
  int depth = 64;
};

// Parses the one YAML document in `text`. CRLF and a byte-order mark are accepted; `<<` is merged
// with the local key winning; aliases are copied out. Refused with their line, in `diagnostics`:
// an empty document, a second one, a key twice in one map (quoted or not), a key that is no text,
// tabs as indentation, control characters, text that is not UTF-8, tags, aliases to themselves,
// and what is beyond `limits`. The result has meaning only when diagnostics.ok().
YamlValue ParseYaml(absl::string_view text, Diagnostics& diagnostics,
                    const YamlLimits& limits = {});

}  // namespace lastflop
