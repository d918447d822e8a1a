#include "arrays.hpp"

#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include "opkit/core/dlpack.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

constexpr DType OfSignedBytes(size_t bytes) {
  return bytes == 1   ? DType::kInt8
         : bytes == 2 ? DType::kInt16
         : bytes == 4 ? DType::kInt32
                      : DType::kInt64;
}
constexpr DType OfUnsignedBytes(size_t bytes) {
  return bytes == 1   ? DType::kUInt8
         : bytes == 2 ? DType::kUInt16
         : bytes == 4 ? DType::kUInt32
                      : DType::kUInt64;
}

// Returns NumPy's dtype of ml_dtypes.bfloat16; null if the package is not there.
PyArray_Descr* BFloat16() {
  static PyArray_Descr* const found = []() -> PyArray_Descr* {
    PyObject* module = PyImport_ImportModule("ml_dtypes");
    PyObject* type = module ? PyObject_GetAttrString(module, "bfloat16") : nullptr;
    PyArray_Descr* out = type ? PyArray_DescrFromTypeObject(type) : nullptr;
    if (!out) PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(module);
    return out;  // lives as long as the process
  }();
  return found;
}

DType OfNumPy(int type) {
  switch (type) {
    case NPY_BOOL:
      return DType::kBool;
    case NPY_BYTE:
      return DType::kInt8;
    case NPY_SHORT:
      return OfSignedBytes(sizeof(npy_short));
    case NPY_INT:
      return OfSignedBytes(sizeof(npy_int));
    case NPY_LONG:
      return OfSignedBytes(sizeof(npy_long));
    case NPY_LONGLONG:
      return OfSignedBytes(sizeof(npy_longlong));
    case NPY_UBYTE:
      return DType::kUInt8;
    case NPY_USHORT:
      return OfUnsignedBytes(sizeof(npy_ushort));
    case NPY_UINT:
      return OfUnsignedBytes(sizeof(npy_uint));
    case NPY_ULONG:
      return OfUnsignedBytes(sizeof(npy_ulong));
    case NPY_ULONGLONG:
      return OfUnsignedBytes(sizeof(npy_ulonglong));
    case NPY_HALF:
      return DType::kFloat16;
    case NPY_FLOAT:
      return DType::kFloat32;
    case NPY_DOUBLE:
      return DType::kFloat64;
    case NPY_CFLOAT:
      return DType::kComplex64;
    case NPY_CDOUBLE:
      return DType::kComplex128;
    case NPY_OBJECT:  // FromStrings looks at the objects
    case NPY_UNICODE:
    case NPY_STRING:
    case NPY_VSTRING:
      return DType::kString;
    default:
      break;
  }
  if (type >= NPY_USERDEF && BFloat16() && BFloat16()->type_num == type) return DType::kBFloat16;
  return DType::kUndefined;
}

// Returns a new reference.
PyArray_Descr* ToNumPyType(DType dtype) {
  constexpr int kTypes[kNumPlainDTypes] = {NPY_NOTYPE,  NPY_BOOL,    NPY_INT8,      NPY_INT16,
                                           NPY_INT32,   NPY_INT64,   NPY_UINT8,     NPY_UINT16,
                                           NPY_UINT32,  NPY_UINT64,  NPY_FLOAT16,   NPY_NOTYPE,
                                           NPY_FLOAT32, NPY_FLOAT64, NPY_COMPLEX64, NPY_COMPLEX128};
  if (dtype == DType::kBFloat16) {
    if (!BFloat16())
      Throw(ErrorCode::kUnsupported,
            "NumPy has no bfloat16 of its own; install the package ml_dtypes");
    Py_INCREF(BFloat16());
    return BFloat16();
  }
  if (!IsPlain(dtype))
    Throw(ErrorCode::kUnsupported, "NumPy has no ", ToString(dtype),
          "; cast it to another type first");
  return PyArray_DescrFromType(kTypes[static_cast<int>(dtype)]);
}

std::string TypeName(PyObject* object) {
  return nb::cast<std::string>(nb::str(nb::handle(object).type().attr("__name__")));
}

// Releases the array of a view, on any thread.
void ReleaseArray(void*, void* array) {
  if (!Py_IsInitialized()) return;  // the process ends; Python has no more objects
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(array));
  PyGILState_Release(state);
}

// Views an array of NumPy. Returns false if a Tensor cannot view its memory.
bool ViewNumPy(PyArrayObject* array, DType dtype, Tensor* out) {
  if (!PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array)) return false;
  const int rank = PyArray_NDIM(array);
  const npy_intp *dims = PyArray_DIMS(array), *steps = PyArray_STRIDES(array);
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  Shape shape(reinterpret_cast<const int64_t*>(dims), static_cast<size_t>(rank));
  Dims strides;
  int64_t bytes = shape.numel() * ItemSize(dtype);
  if (!PyArray_IS_C_CONTIGUOUS(array) && bytes > 0) {
    const int64_t size = ItemSize(dtype);
    strides = Dims(reinterpret_cast<const int64_t*>(steps), static_cast<size_t>(rank));
    int64_t last = 0;
    for (int axis = 0; axis < rank; ++axis) {
      if (dims[axis] == 1) strides[axis] = 0;
      if (strides[axis] < 0 || strides[axis] % size != 0) return false;
      last += strides[axis] * (dims[axis] - 1);
      strides[axis] /= size;
    }
    bytes = last + size;
  }
  Py_INCREF(array);
  Storage storage = AdoptStorage(Device(), PyArray_DATA(array), bytes, &ReleaseArray, array);
  *out = Tensor(std::move(storage), 0, std::move(shape), dtype, std::move(strides));
  return true;
}

// Copies an array of strings.
Tensor FromStrings(PyArrayObject* array, const ArrayName& what) {
  PyObject* objects =
      PyArray_FromArray(array, PyArray_DescrFromType(NPY_OBJECT), NPY_ARRAY_CARRAY_RO);
  if (!objects) throw nb::python_error();
  const nb::object owner = nb::steal(objects);
  auto* const dense = reinterpret_cast<PyArrayObject*>(objects);
  const npy_intp* dims = PyArray_DIMS(dense);
  Tensor out(
      Shape(reinterpret_cast<const int64_t*>(dims), static_cast<size_t>(PyArray_NDIM(dense))),
      DType::kString);
  auto* const items = static_cast<PyObject**>(PyArray_DATA(dense));
  auto* const strings = out.mutable_data<std::string>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    PyObject* item = items[i] ? items[i] : Py_None;
    const char* text = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_Check(item)) {
      text = PyBytes_AS_STRING(item);
      size = PyBytes_GET_SIZE(item);
    } else if (PyUnicode_Check(item)) {
      text = PyUnicode_AsUTF8AndSize(item, &size);
      if (!text) throw nb::python_error();
    } else {
      Throw(ErrorCode::kTypeMismatch, "element ", i, " of ", ToString(what), " is a ",
            TypeName(item),
            "; expected a str in an array of objects, and a dtype of numbers for numbers");
    }
    strings[i].assign(text, static_cast<size_t>(size));
  }
  return out;
}

Tensor FromNumPy(PyArrayObject* array, const ArrayName& what, Access access) {
  const DType dtype = OfNumPy(PyArray_TYPE(array));
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kTypeMismatch, what, " has the dtype ",
          nb::cast<std::string>(
              nb::str(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array))))),
          ", which opkit does not have");
  if (dtype == DType::kString) {
    if (access == Access::kRead) return FromStrings(array, what);
    Throw(ErrorCode::kUnsupported, what,
          " is an array of strings; a result that has strings is a new array, without out=");
  }
  if (access == Access::kWrite && !PyArray_ISWRITEABLE(array))
    Throw(ErrorCode::kInvalidArgument, what, " is read-only");
  Tensor out;
  if (ViewNumPy(array, dtype, &out)) return out;
  if (access == Access::kWrite)
    Throw(ErrorCode::kInvalidArgument, what,
          " has another byte order, negative strides or an unaligned address; give an array that "
          "numpy.empty made");
  PyObject* copy =
      PyArray_FromArray(array, PyArray_DescrNewByteorder(PyArray_DESCR(array), NPY_NATIVE),
                        NPY_ARRAY_CARRAY_RO | NPY_ARRAY_ENSURECOPY);
  if (!copy) throw nb::python_error();
  const nb::object owner = nb::steal(copy);
  if (!ViewNumPy(reinterpret_cast<PyArrayObject*>(copy), dtype, &out))
    Throw(ErrorCode::kUnsupported, what, " has memory that opkit cannot read");
  return out;
}

template <class Managed>
Tensor TakeCapsule(PyObject* capsule, const char* name, const char* used, const ArrayName& what,
                   Access access) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (!managed) throw nb::python_error();
  try {
    Tensor out = FromDLPack(
        managed, access == Access::kRead ? DLPackReadOnly::kAccepted : DLPackReadOnly::kRefused);
    PyCapsule_SetName(capsule, used);
    return out;
  } catch (const Error& error) {
    Throw(error.code(), what, ": ", error.message());
  }
}

// JAX does not mark its memory as read-only.
bool IsOfJax(PyObject* array) {
  const nb::object module = nb::handle(array).type().attr("__module__");
  return nb::isinstance<nb::str>(module) && nb::cast<std::string>(module).rfind("jax", 0) == 0;
}

Tensor FromDLPackObject(PyObject* array, const ArrayName& what, Access access) {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
  static PyObject* const keywords = Py_BuildValue("(s)", "max_version");
  static PyObject* const version = Py_BuildValue("(ii)", 1, 1);
  PyObject* arguments[] = {array, version};
  PyObject* capsule = PyObject_VectorcallMethod(name, arguments, 1, keywords);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {  // DLPack before version 1
    PyErr_Clear();
    capsule = PyObject_VectorcallMethod(name, arguments, 1, nullptr);
  }
  if (!capsule) throw nb::python_error();
  const nb::object owner = nb::steal(capsule);
  return PyCapsule_IsValid(capsule, "dltensor_versioned")
             ? TakeCapsule<dlpack::DLManagedTensorVersioned>(
                   capsule, "dltensor_versioned", "used_dltensor_versioned", what, access)
             : TakeCapsule<dlpack::DLManagedTensor>(capsule, "dltensor", "used_dltensor", what,
                                                    access);
}

// A tensor as an object with DLPack's methods, from which any array library makes its array.
struct Exported {
  Tensor tensor;

  // Throws BufferError for a stream: the array API standard has none for arrays in host memory.
  nb::object Capsule(nb::kwargs options) const {
    if (options.contains("stream") && !options["stream"].is_none())
      throw nb::buffer_error(
          "the array is in host memory, which has no streams: expected stream=None");
    const bool versioned = options.contains("max_version") && !options["max_version"].is_none();
    if (versioned)
      return Make(ToDLPackVersioned<dlpack::DLManagedTensorVersioned>(tensor),
                  "dltensor_versioned");
    return Make(ToDLPack<dlpack::DLManagedTensor>(tensor), "dltensor");
  }
  nb::tuple DeviceOf() const {
    return nb::make_tuple(static_cast<int>(tensor.device().type), tensor.device().index);
  }

 private:
  template <class Managed>
  static nb::object Make(Managed* managed, const char* name) {
    PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* self) {
      for (const char* unused : {"dltensor", "dltensor_versioned"}) {
        if (!PyCapsule_IsValid(self, unused)) continue;
        auto* left = static_cast<Managed*>(PyCapsule_GetPointer(self, unused));
        left->deleter(left);
      }
    });
    if (!capsule) {
      managed->deleter(managed);
      throw nb::python_error();
    }
    return nb::steal(capsule);
  }
};

}  // namespace

bool IsNumPy(PyObject* object) { return PyArray_Check(object) || PyArray_CheckScalar(object); }

Tensor FromArray(PyObject* array, const ArrayName& what, Access access) {
  if (PyArray_Check(array)) [[likely]]
    return FromNumPy(reinterpret_cast<PyArrayObject*>(array), what, access);
  if (access == Access::kRead && PyArray_CheckScalar(array)) {
    const nb::object whole = nb::steal(PyArray_FromScalar(array, nullptr));
    if (!whole.is_valid()) throw nb::python_error();
    return FromNumPy(reinterpret_cast<PyArrayObject*>(whole.ptr()), what, access);
  }
  if (access == Access::kWrite && IsOfJax(array))
    Throw(ErrorCode::kInvalidArgument, what, " is an array of JAX, which never changes");
  if (PyObject_HasAttrString(array, "__dlpack__")) return FromDLPackObject(array, what, access);
  Throw(ErrorCode::kTypeMismatch, what, " is a ", TypeName(array),
        "; expected an array of NumPy, or of another library that has DLPack");
}

// Returns a new array of str objects.
nb::object StringsToNumPy(const Tensor& dense, Access access) {
  PyObject* array = PyArray_SimpleNew(
      dense.rank(), reinterpret_cast<const npy_intp*>(dense.shape().data()), NPY_OBJECT);
  if (!array) throw nb::python_error();
  nb::object out = nb::steal(array);
  auto* const items =
      static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  for (int64_t i = 0; i < dense.numel(); ++i) {
    const std::string& text = dense.data<std::string>()[i];
    PyObject* item =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
    if (!item) throw nb::python_error();
    Py_XSETREF(items[i], item);
  }
  if (access == Access::kRead)
    PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_WRITEABLE);
  return out;
}

nb::object ToNumPy(const Tensor& tensor, Access access) {
  const Tensor dense = tensor.layout().is_standard() ? tensor : tensor.Contiguous();
  constexpr int kMostDims = 64;  // of NumPy 2; NumPy 1 refuses more than 32 itself
  npy_intp dims[kMostDims], steps[kMostDims];
  const int rank = dense.rank();
  if (rank > kMostDims) Throw(ErrorCode::kUnsupported, "NumPy has no arrays of rank ", rank);
  if (dense.dtype() == DType::kString) return StringsToNumPy(dense, access);
  const Dims strides = dense.strides();
  const int64_t size = ItemSize(dense.dtype());
  for (int axis = 0; axis < rank; ++axis)
    dims[axis] = dense.shape()[axis], steps[axis] = strides[axis] * size;
  PyArray_Descr* type = ToNumPyType(dense.dtype());
  if (dense.numel() == 0) {  // a tensor without elements need not have memory
    PyObject* empty =
        PyArray_NewFromDescr(&PyArray_Type, type, rank, dims, nullptr, nullptr, 0, nullptr);
    if (!empty) throw nb::python_error();
    return nb::steal(empty);
  }
  PyObject* array =
      PyArray_NewFromDescr(&PyArray_Type, type, rank, dims, steps, dense.raw_mutable_data(),
                           access == Access::kWrite ? NPY_ARRAY_WRITEABLE : 0, nullptr);
  if (!array) throw nb::python_error();
  nb::object out = nb::steal(array);
  PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(array),
                      NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  PyObject* owner = PyCapsule_New(new Tensor(dense), nullptr, [](PyObject* self) {
    delete static_cast<Tensor*>(PyCapsule_GetPointer(self, nullptr));
  });
  if (!owner || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner) < 0)
    throw nb::python_error();
  return out;
}

nb::object ToArrayLike(const Tensor& tensor, PyObject* like) {
  if (!like || like == Py_None || IsNumPy(like) || tensor.dtype() == DType::kString) [[likely]]
    return ToNumPy(tensor);
  const nb::object convert = nb::module_::import_("opkit._arrays").attr("like");
  return convert(Exported{tensor}, nb::handle(like));
}

DType DTypeOf(nb::handle dtype) {
  if (nb::isinstance<nb::str>(dtype)) {
    const DType named = DTypeFromName(nb::cast<std::string>(dtype));
    if (named != DType::kUndefined) return named;
  }
  PyArray_Descr* type = nullptr;
  if (PyArray_DescrConverter(dtype.ptr(), &type) == NPY_FAIL) throw nb::python_error();
  const DType found = OfNumPy(type->type_num);
  const nb::object owner = nb::steal(reinterpret_cast<PyObject*>(type));
  if (found == DType::kUndefined)
    Throw(ErrorCode::kTypeMismatch, "opkit has no dtype ", nb::cast<std::string>(nb::str(owner)));
  return found;
}

void BindArrays(nb::module_& m) {
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
  nb::class_<Exported>(m, "Exported")
      .def("__dlpack__", &Exported::Capsule)
      .def("__dlpack_device__", &Exported::DeviceOf);
}

}  // namespace opkit_python
