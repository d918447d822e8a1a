// A fake of libtorch_cpu.so: the functions that the export to PyTorch calls, over plain C++ values,
// and functions for the test.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Handle = void*;
using Kernel = void (*)(uint64_t*, uint64_t, uint64_t);
struct Tensor {
  std::vector<char> data;
  std::vector<int64_t> sizes, strides;
  int32_t dtype;
};
using List = std::vector<uint64_t>;

int g_alive = 0;  // tensors, lists and strings
std::string g_schemas;
std::map<std::string, Kernel> g_kernels;

Tensor& Of(Handle handle) { return *static_cast<Tensor*>(handle); }
template <class T>
int32_t Return(T* to, T value) {
  *to = value;
  return 0;
}
template <class T>
int32_t Delete(Handle handle) {
  --g_alive;
  delete static_cast<T*>(handle);
  return 0;
}

}  // namespace

extern "C" {

int32_t aoti_torch_library_init_fragment(const char* domain, const char*, uint32_t, Handle* out) {
  return Return(out, Handle(domain));
}
int32_t aoti_torch_library_def(Handle library, const char* schema) {
  g_schemas += std::string(static_cast<const char*>(library)) + "::" + schema + "\n";
  return 0;
}
int32_t aoti_torch_library_init_impl(const char*, const char* key, const char*, uint32_t,
                                     Handle* out) {
  return Return(out, Handle(key));
}
int32_t torch_library_impl(Handle key, const char* op, Kernel kernel, uint64_t version) {
  if (version != (uint64_t{2} << 56 | uint64_t{10} << 48)) return 1;
  g_kernels[std::string(static_cast<const char*>(key)) + " " + op] = kernel;
  return 0;
}
int32_t aoti_torch_get_data_ptr(Handle tensor, void** out) {
  return Return(out, static_cast<void*>(Of(tensor).data.data()));
}
int32_t aoti_torch_get_dim(Handle tensor, int64_t* out) {
  return Return(out, static_cast<int64_t>(Of(tensor).sizes.size()));
}
int32_t aoti_torch_get_sizes(Handle tensor, int64_t** out) {
  return Return(out, Of(tensor).sizes.data());
}
int32_t aoti_torch_get_strides(Handle tensor, int64_t** out) {
  return Return(out, Of(tensor).strides.data());
}
int32_t aoti_torch_get_dtype(Handle tensor, int32_t* out) { return Return(out, Of(tensor).dtype); }
int32_t aoti_torch_get_device_type(Handle, int32_t* out) { return Return(out, 0); }
int32_t aoti_torch_get_device_index(Handle, int32_t* out) { return Return(out, -1); }
int32_t aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides,
                                 int32_t dtype, int32_t, int32_t, Handle* out) {
  ++g_alive;
  int64_t count = 1;
  for (int64_t axis = 0; axis < rank; ++axis) count += (sizes[axis] - 1) * strides[axis];
  auto* tensor = new Tensor{std::vector<char>(static_cast<size_t>(count) * 8),
                            {sizes, sizes + rank},
                            {strides, strides + rank},
                            dtype};
  return Return(out, Handle(tensor));
}
int32_t aoti_torch_delete_tensor_object(Handle tensor) { return Delete<Tensor>(tensor); }
int32_t torch_new_list_reserve_size(size_t, Handle* out) {
  ++g_alive;
  return Return(out, Handle(new List));
}
int32_t torch_list_size(Handle list, size_t* out) {
  return Return(out, static_cast<List*>(list)->size());
}
int32_t torch_list_get_item(Handle list, size_t i, uint64_t* out) {
  return Return(out, static_cast<List*>(list)->at(i));
}
int32_t torch_list_push_back(Handle list, uint64_t value) {
  static_cast<List*>(list)->push_back(value);
  return 0;
}
int32_t torch_delete_list(Handle list) { return Delete<List>(list); }
int32_t torch_new_string_handle(const char* data, size_t size, Handle* out) {
  ++g_alive;
  return Return(out, Handle(new std::string(data, size)));
}
int32_t torch_string_length(Handle string, size_t* out) {
  return Return(out, static_cast<std::string*>(string)->size());
}
int32_t torch_string_c_str(Handle string, const char** out) {
  return Return(out, static_cast<std::string*>(string)->c_str());
}
int32_t torch_delete_string(Handle string) { return Delete<std::string>(string); }
int g_loops = 0;
int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t,
                           void (*body)(int64_t, int64_t, void*), void* data) {
  ++g_loops;
  for (int64_t i = begin; i < end; ++i) body(i, i + 1, data);
  return 0;
}
int32_t torch_get_num_threads(uint32_t* out) { return Return(out, uint32_t{4}); }

int fake_torch_alive() { return g_alive; }
int fake_torch_loops() { return g_loops; }
const char* fake_torch_schemas() { return g_schemas.c_str(); }
Kernel fake_torch_kernel(const char* key_and_op) { return g_kernels[key_and_op]; }

}  // extern "C"
