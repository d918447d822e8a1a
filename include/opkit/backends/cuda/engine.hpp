// Registers CUDA devices with the Engine. An operation's closure runs on a thread of the pool, with
// a current stream of the device. The operation is done when that stream has done its work.
#ifndef OPKIT_BACKENDS_CUDA_ENGINE_HPP_
#define OPKIT_BACKENDS_CUDA_ENGINE_HPP_

#include "opkit/backends/cuda/context.hpp"
#include "opkit/engine/engine.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

//   engine.Push([&] { Kernel<<<blocks, threads, 0, CUDAStream::Current(0)->handle()>>>(…); },
//               {x}, {y}, {.device = {DeviceType::kCUDA, 0}});
inline const bool cuda_engine_registered = RegisterEngineDevice<CUDAContext>();

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_ENGINE_HPP_
