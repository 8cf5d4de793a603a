// Marks a function that is compiled for the host and, in kernels/kernels.cu, for GPUs.
#pragma once

#if defined(__CUDA__) || defined(__CUDACC__)
#define MUSTER_HOST_AND_DEVICE __attribute__((host)) __attribute__((device))
#else
#define MUSTER_HOST_AND_DEVICE
#endif
