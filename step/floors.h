#pragma once

#include "common/machine.h"
#include "step/op.h"

namespace lastflop {

// The least time `op` can take on `machine`, in us: its cold bytes on the cold-read curve, its flop
// over the measured rate of products (the declared peak of its format where none was measured), its
// sent bytes over the link, whichever is longest. Weights and KV cache are cold; activations count
// only where they exceed the last-level cache. 0 when the machine's numbers are unknown: no floor
// is claimed.
double FloorMicros(const Op& op, const Machine& machine);

// The same against the machine's *declared* peaks alone (bandwidth and flop, no measured curve): a
// time under it is impossible. 0 when none is declared.
double DeclaredFloorMicros(const Op& op, const Machine& machine);

}  // namespace lastflop
