#pragma once

#include "common/pair.h"  // Pair: what an estimate is made from.
