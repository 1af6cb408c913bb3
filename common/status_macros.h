#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function with the error of `expr`, if it has one.
#define LASTFLOP_RETURN_IF_ERROR(expr)                                  \
  do {                                                                  \
    if (absl::Status lastflop_status = (expr); !lastflop_status.ok()) { \
      return lastflop_status;                                           \
    }                                                                   \
  } while (false)

#define LASTFLOP_CONCAT_INNER(a, b) a##b
#define LASTFLOP_CONCAT(a, b) LASTFLOP_CONCAT_INNER(a, b)

// Declares or assigns `lhs` from a StatusOr, or returns its error from the enclosing function.
#define LASTFLOP_ASSIGN_OR_RETURN(lhs, expr) \
  LASTFLOP_ASSIGN_OR_RETURN_IMPL(LASTFLOP_CONCAT(lastflop_or_, __LINE__), lhs, expr)
#define LASTFLOP_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                   \
  if (!result.ok()) return std::move(result).status();    \
  lhs = std::move(result).value()
