// What each thread has of CUDA's runtime in the stand-in: its GPU, and its last error.
//
// As with CUDA, a thread that has not chosen uses GPU 0, and whatever it asks for makes a context there; streams and
// events belong to the GPU that their thread uses when they are made.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace muster::stand_ins {

/// The calling thread's GPU, which from now on has a context of this process.
int use_current_device();

/// Whether MUSTER_STANDIN_GPU_FAULT plants this fault in the thread's GPU, or in another of those that
/// CUDA_VISIBLE_DEVICES names: "FAULT" in all, or "FAULT@UUID" in one. Faults: hang (the driver does not answer),
/// no_memory, slow_copy (100 MB/s from and to the host), wrong_peer (one wrong bit in what it copies to another GPU),
/// or the name of a kernel that writes one wrong bit.
bool has_fault(std::string_view fault);
bool has_fault(std::string_view fault, int device);

/// Keeps an error as the thread's last one. As with CUDA, "not ready" is none.
cudaError_t keep(cudaError_t result);

}  // namespace muster::stand_ins

/// One bit for each GPU on which this process has a context.
extern "C" unsigned standin_contexts();
/// The GPU that a stream belongs to.
extern "C" int standin_device_of(cudaStream_t stream);
