#pragma once

// Launches that follow each other and overlap (programmatic dependent launch). Device code only;
// nothing happens on GPUs that have none (before sm_90).
namespace lastflop {

// griddepcontrol.wait: returns when the kernels before this one are over and what they wrote is
// visible. What depends on them comes after.
__device__ inline void WaitForEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// griddepcontrol.launch_dependents: the next kernel's blocks may take their places once all of this
// one have called it. Called after WaitForEarlierKernels(), so that a kernel two places later still
// finds all before it complete.
__device__ inline void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace lastflop
