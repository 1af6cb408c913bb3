/* Plugins that do what a plugin must not, one a build: FAULT says what. */

#include <lastflop_plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CRASH = 1,
  LEAVE,
  HANG,
  WRONG,
  OVERRUN,
  ABI,
  REFUSE,
  FAIL,
  SCRIBBLE,
  GREEDY,
  OVERWORK,
  PREPARED
};

static lastflop_moe_problem kept;

static int32_t query(const lastflop_moe_problem* problem, lastflop_moe_needs* needs, char* reason,
                     size_t reason_bytes) {
  kept = *problem;
  needs->workspace_bytes = 64;
  if (FAULT == REFUSE) {
    snprintf(reason, reason_bytes, "hidden_size=%d: only 7168 is built",
             (int)problem->hidden_size);
    return 1;
  }
  if (FAULT == GREEDY) {
    needs->workspace_bytes = (int64_t)1 << 60;
  }
  if (FAULT == PREPARED) {
    needs->prepared_bytes = 64; /* And no prepare(). */
  }
  return 0;
}

static int32_t run(void* state, const lastflop_host* host, const lastflop_moe_call* call,
                   char* reason, size_t reason_bytes) {
  const size_t out_bytes = (size_t)(call->num_tokens * kept.hidden_size) * 2;
  (void)state;
  (void)host;
  memset(call->out, 0, out_bytes);
  switch (FAULT) {
    case CRASH:
      *(volatile int*)call->num_tokens = 1; /* No memory is there. */
      break;
    case LEAVE:
      exit(7);
    case HANG:
      for (;;) {
        *(volatile char*)call->workspace = 1;
      }
    case OVERRUN:
      memset((char*)call->out + out_bytes, 1, 2);
      break;
    case OVERWORK:
      memset((char*)call->workspace + 64, 1, 2);
      break;
    case FAIL:
      snprintf(reason, reason_bytes, "out of luck\n");
      return 3;
    case SCRIBBLE:
      memset((void*)(size_t)call->in, 0, 2);
      break;
    default:
      break;
  }
  return 0;
}

#ifndef NO_ENTRY
static const lastflop_plugin plugin = {
    FAULT == ABI ? LASTFLOP_PLUGIN_ABI_VERSION + 1 : LASTFLOP_PLUGIN_ABI_VERSION,
    "faulty",
    query,
    NULL,
    NULL,
    NULL,
    run};

const lastflop_plugin* lastflop_plugin_entry(void) { return &plugin; }
#endif
