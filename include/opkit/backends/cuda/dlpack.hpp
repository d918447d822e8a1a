// DLPack with streams: ToDLPackOnStream and FromDLPackOnStream share CUDA memory with another
// library whose work is on a stream of its own, without a wait of the host. They follow the
// argument `stream` of Python's __dlpack__.
#ifndef OPKIT_BACKENDS_CUDA_DLPACK_HPP_
#define OPKIT_BACKENDS_CUDA_DLPACK_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/core/dlpack.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Memory that is released only after work of streams.
struct CUDALoan {
  Storage memory;
  CUDAStream* stream;  // may be null
  bool with_current;   // also after the work of the stream on which the releasing thread issues

  // Returns a tensor of the same elements, whose last handle ends a loan.
  static Tensor Lend(const Tensor& tensor, CUDAStream* stream, bool with_current) {
    const Storage& memory = tensor.storage();
    auto loan = std::make_unique<CUDALoan>(CUDALoan{memory, stream, with_current});
    Storage lent = AdoptStorage(memory->device(), memory->data(), memory->nbytes(), &CUDALoan::End,
                                loan.get());
    loan.release();
    return Tensor(std::move(lent), tensor.byte_offset(), tensor.shape(), tensor.dtype(),
                  tensor.is_dense() ? Dims() : tensor.strides());
  }
  static void End(void*, void* context) {
    const std::unique_ptr<CUDALoan> loan(static_cast<CUDALoan*>(context));
    CUDAStream* const current =
        loan->with_current ? CUDAStream::Current(loan->memory->device().index) : nullptr;
    if (loan->stream) loan->KeepOn(*loan->stream);
    if (current && current != loan->stream) loan->KeepOn(*current);
  }

 private:
  void KeepOn(CUDAStream& on) const {
    try {
      RefCountedList kept{memory};
      on.Keep(kept);
    } catch (...) {  // the device accepts no more work
    }
  }
};

inline void CheckOnCUDA(Device device) {
  if (device.type != DeviceType::kCUDA)
    Throw(ErrorCode::kInvalidArgument, "a tensor on ", device,
          " has no CUDA stream: exchange it without a stream");
  CheckCUDADevice(device);
}

}  // namespace detail

// Exports like ToDLPackVersioned, or like ToDLPack for the unversioned struct, to a library that
// uses the memory on the stream `consumer` of the tensor's device. That stream waits for the work
// that was issued on the calling thread's current stream of the device. The deleter releases the
// memory once the work that was issued on `consumer` before is done; the stream must live until
// then. Throws also kInvalidArgument for a tensor of another device type, and the errors of
// CUDAStream::Foreign.
//
// In Python's protocol 1 is cudaStreamLegacy, 2 is cudaStreamPerThread, and another positive number
// is the handle itself. For -1 export with ToDLPack: the consumer waits by itself.
template <detail::DLPackManaged Managed = dlpack::DLManagedTensorVersioned>
Managed* ToDLPackOnStream(const Tensor& tensor, cudaStream_t consumer) {
  const auto to_dlpack = [](const Tensor& exported) {
    if constexpr (detail::Versioned<Managed>)
      return ToDLPackVersioned<Managed>(exported);
    else
      return ToDLPack<Managed>(exported);
  };
  if (!tensor.initialized()) return to_dlpack(tensor);  // throws
  detail::CheckOnCUDA(tensor.device());
  CUDAStream& stream = CUDAStream::Foreign(tensor.device(), consumer);
  if (!tensor.layout().is_standard()) return to_dlpack(tensor);  // throws
  Managed* const managed =
      to_dlpack(detail::CUDALoan::Lend(tensor, &stream, /*with_current=*/false));
  try {
    if (CUDAStream* const current = CUDAStream::Current(tensor.device().index))
      stream.Wait(current->Mark());
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
  return managed;
}

// Imports like FromDLPack the memory of a library whose work on it is on the stream `producer`. The
// calling thread's current stream of the device waits for that work; its other streams must wait
// for an event of this one. The deleter is called once the work is done that was issued on this
// stream, and on the current stream of the thread that releases the last handle. Throws also
// kInvalidArgument for memory of another device type, and the errors of CUDAStream::Foreign; the
// caller then still owns `managed`.
template <detail::DLPackManaged Managed>
Tensor FromDLPackOnStream(Managed* managed, cudaStream_t producer,
                          DLPackReadOnly read_only = DLPackReadOnly::kRefused) {
  if (!managed) return FromDLPack(managed, read_only);  // throws
  const auto& given = managed->dl_tensor.device;
  const Device device{static_cast<DeviceType>(given.device_type), given.device_id};
  detail::CheckOnCUDA(device);
  CUDAStream& from = CUDAStream::Foreign(device, producer);
  CUDAStream* const current = CUDAStream::Current(device.index);
  CUDAStream& stream = current ? *current : CUDAStream::Get(device, 0);
  stream.Wait(from.Mark());
  const Tensor tensor = FromDLPack(managed, read_only);
  // The stream of a CUDAStreamScope may be destroyed before the last handle.
  return detail::CUDALoan::Lend(tensor, stream.is_foreign() ? nullptr : &stream,
                                /*with_current=*/true);
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_DLPACK_HPP_
