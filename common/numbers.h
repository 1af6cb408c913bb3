#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Numbers as users write them, the same in YAML, plan text and flags: what is accepted has one
// meaning, and what could have two is refused.
namespace lastflop {

// A whole number in plain decimal digits, "-" allowed. InvalidArgument for everything that other
// readers see as something else: 0100, 1_000, 1e3, 8.0, 0x10, "+5".
absl::StatusOr<int64_t> ParseInteger(absl::string_view text);

// A finite decimal number, "0.75" or "1e-3". InvalidArgument for nan, inf, hexadecimal, separators
// and leading zeros ("010").
absl::StatusOr<double> ParseNumber(absl::string_view text);

// The shortest text that ParseNumber reads as the same value.
std::string NumberText(double value);

}  // namespace lastflop
