// Conversions of opkit_op, member by member, in both directions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_

#include <algorithm>
#include <cstring>

#include "opkit/base/name_index.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE int DeviceTypeFromName(std::string_view name) {
  if (name == "gpu") return static_cast<int>(DeviceType::kGPU);
  DeviceTypeRegistry& registry = DeviceTypes();
  MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

// Fills in the ABI structs inside a record, and owns the arrays that they point to.
class OPKIT_IMAGE_LOCAL ExportedOp : public RefCounted {
 public:
  OPKIT_COLD explicit ExportedOp(FunctionRecord record)
      : record_(std::move(record)),
        kernels_(record_->devices.size()),
        inplace_(2 * record_->inplace.size()),
        parameters_(record_->attributes.size() + record_->inputs.size() + record_->outputs.size()),
        parameter_pointers_(parameters_.size()) {
    FunctionOpRecord& from = *record_;
    opkit_op& op = from.abi;
    op.size = sizeof op;
    op.name = from.name.c_str();
    op.doc = from.doc.c_str();
    op.file = from.file;
    op.line = from.line;
    op.flags = from.flags;
    for (size_t k = 0; k < kernels_.size(); ++k) kernels_[k] = Kernel(from.devices[k]);
    op.num_kernels = kernels_.size();
    op.kernels = kernels_.data();
    for (size_t i = 0; i < from.inplace.size(); ++i) {
      inplace_[2 * i] = from.inplace[i].first;
      inplace_[2 * i + 1] = from.inplace[i].second;
    }
    op.num_inplace = from.inplace.size();
    op.inplace = inplace_.data();
    opkit_parameter* next = parameters_.data();
    for (const AttributeSchema& attribute : from.attributes) FillIn(*next++, attribute);
    for (const auto* list : {&from.inputs, &from.outputs})
      for (const ValueSchema& value : *list) FillIn(*next++, value);
    for (size_t p = 0; p < parameters_.size(); ++p) parameter_pointers_[p] = &parameters_[p];
    op.num_attrs = from.attributes.size();
    op.attrs = parameter_pointers_.data();
    op.num_inputs = from.inputs.size();
    op.inputs = op.attrs + op.num_attrs;
    op.num_outputs = from.outputs.size();
    op.outputs = op.inputs + op.num_inputs;
  }

 private:
  static const opkit_kernel* Kernel(FunctionDevice& device) {
    opkit_kernel& kernel = device.abi;
    kernel.size = sizeof kernel;
    kernel.device = device.name.c_str();
    kernel.backend = device.backend.empty() ? nullptr : device.backend.c_str();
    kernel.flags = device.create_state && device.shares_state ? OPKIT_KERNEL_STATEFUL : 0;
    return &kernel;
  }
  template <class From>
  void FillIn(opkit_parameter& parameter, const From& from) {
    parameter.size = sizeof parameter;
    parameter.name = from.name.c_str();
    parameter.doc = from.doc.c_str();
    parameter.type = -1;
    if constexpr (std::is_same_v<From, ValueSchema>) {
      for (const DType dtype : from.dtypes)
        if (!IsObject(dtype)) parameter.dtypes |= uint64_t{1} << static_cast<int>(dtype);
    } else {
      if (from.type) parameter.type = static_cast<int32_t>(*from.type);
      parameter.required = from.required;
      if (!from.default_value) return;
      auto value = MakeIntrusive<AbiAttributes>(Arguments{{from.name, *from.default_value}});
      parameter.default_value = *value->data();
      defaults_.push_back(std::move(value));
    }
  }

  FunctionRecord record_;
  std::vector<const opkit_kernel*> kernels_;
  std::vector<int32_t> inplace_;
  std::vector<opkit_parameter> parameters_;
  std::vector<const opkit_parameter*> parameter_pointers_;
  RefCountedList defaults_;  // list of AbiAttributes
};

OPKIT_COLD OPKIT_INLINE const opkit_op* ExportOp(FunctionRecord record, RefCountedList& owners) {
  const opkit_op* op = &record->abi;
  owners.push_back(MakeIntrusive<ExportedOp>(std::move(record)));
  return op;
}

OPKIT_INLINE void RefuseDescription(const std::string& library, const Text& what, const Text& mend,
                                    ErrorCode code) {
  const std::string advice = StrCat(mend);
  Throw(code, "library ", library, " ", what, advice.empty() ? "" : "; ", advice);
}
OPKIT_INLINE void CheckLibraryText(const std::string& library, const char* name, const Text& what,
                                   unsigned char least, const Text& mend) {
  constexpr size_t kLongestName = 255;
  for (size_t i = 0; name && name[i]; ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i >= kLongestName)
      RefuseDescription(library, StrCat("has ", what, " of more than ", kLongestName,
                                        " bytes: ", std::string(name, 32), "…"));
    if (c < least || c == 127)
      RefuseDescription(
          library, StrCat("has ", what, " that holds the character ", static_cast<int>(c)), mend);
  }
}

OPKIT_INLINE void CheckLibraryTextEnds(const std::string& library, const char* text,
                                       const Text& what) {
  if (text && ::strnlen(text, kMostTextBytes + 1) > kMostTextBytes)
    RefuseDescription(library, StrCat("has ", what, " of more than ", kMostTextBytes,
                                      " bytes, or without an end"));
}

// Reads one operator's description; throws if it is wrong.
class OpImport {
 public:
  OpImport(const opkit_op& op, const std::string& library) : op_(op), library_(library) {}

  FunctionRecord Read(uint64_t index) {
    if (!IsReadable(&op_))
      Refuse(StrCat("describes operator ", index, " in ", op_.size,
                    " bytes, where version 1.0 has ", kFirstBytes<opkit_op>),
             "fill in opkit_op.size with sizeof(opkit_op)");
    if (!op_.name || !*op_.name) Refuse(StrCat("gives operator ", index, " no name"));
    CheckLibraryText(library_, op_.name, "an operator's name", '!', "use letters, digits, _ . -");
    FunctionRecord record(new FunctionOpRecord);
    FunctionOpRecord& to = *record;
    to.name = op_.name;
    Text(op_.file, "a file's name");
    to.file = op_.file ? op_.file : "";
    to.line = op_.line;
    to.doc = Text(op_.doc, "a doc");
    to.library = library_;
    to.flags = op_.flags;
    if (op_.num_kernels == 0 || !op_.kernels)
      Refuse(StrCat("has ", who(), " without a kernel"),
             "give it a forward function: REGISTER_OP(…).setForward(f), or setCreateOpState(f)");
    CheckArray(op_.num_kernels, op_.kernels, "kernels");
    for (uint64_t k = 0; k < op_.num_kernels; ++k) AddKernel(k, to.devices);
    CheckArray(op_.num_inplace, op_.inplace, "in-place pairs");
    for (uint64_t i = 0; i < op_.num_inplace; ++i) {
      const int32_t input = op_.inplace[2 * i], output = op_.inplace[2 * i + 1];
      if (input < 0 || output < 0)
        Refuse(StrCat("has ", who(), " that may run in place from input ", input, " to output ",
                      output),
               "both count from 0");
      to.inplace.emplace_back(input, output);
    }
    AddParameters(op_.attrs, op_.num_attrs, "attributes", to.attributes);
    AddParameters(op_.inputs, op_.num_inputs, "inputs", to.inputs);
    AddParameters(op_.outputs, op_.num_outputs, "outputs", to.outputs);
    std::memcpy(&to.abi, &op_, (std::min)(op_.size, uint64_t{sizeof to.abi}));
    return record;
  }

 private:
  [[noreturn]] void Refuse(const Text& what, const Text& mend = {}) const {
    RefuseDescription(library_, what, mend);
  }
  std::string who() const { return StrCat("operator ", op_.name); }
  std::string Text(const char* text, const char* what) const {
    CheckLibraryTextEnds(library_, text, StrCat(who(), " with ", what));
    return text ? text : "";
  }

  // Throws for a damaged count, or for a missing array.
  template <class T>
  void CheckArray(uint64_t count, const T* array, const char* what) const {
    if (count > kMostParts)
      Refuse(StrCat("has ", who(), " with ", count, " ", what), StrCat("at most ", kMostParts));
    if (count > 0 && !array) Refuse(StrCat("has ", who(), " whose ", what, " are null"));
    if (!IsAligned(array)) Refuse(StrCat("has ", who(), " whose ", what, " are not aligned"));
  }
  void AddKernel(uint64_t k, std::vector<FunctionDevice>& devices) const {
    const opkit_kernel* kernel = op_.kernels[k];
    if (!IsReadable(kernel) || !kernel->device)
      Refuse(StrCat("has kernel ", k, " of operator ", op_.name,
                    " that is null, shorter than version 1.0's or without a device"));
    CheckLibraryText(library_, kernel->device, StrCat(who(), " with a kernel for a device"));
    if (!kernel->forward)
      Refuse(StrCat("has operator ", op_.name, " without a forward function for ", kernel->device),
             StrCat("REGISTER_OP(", op_.name, ").setForward(f, \"", kernel->device,
                    "\"), or setCreateOpState(f, \"", kernel->device, "\")"));
    const int type = DeviceTypeFromName(kernel->device);
    if (type < 0)
      Refuse(StrCat("has a kernel of operator ", op_.name, " for \"", kernel->device,
                    "\", which is no device type of this program"),
             "\"cpu\", \"gpu\" and \"cpu_stream\" are");
    const char* const backend =
        OPKIT_ABI_HAS(kernel, backend) && kernel->backend ? kernel->backend : "";
    CheckLibraryText(library_, backend, StrCat(who(), " with a kernel of a backend"));
    for (const FunctionDevice& other : devices)
      if (other.type == static_cast<DeviceType>(type) && other.backend == backend)
        Refuse(StrCat("has two kernels of operator ", op_.name, " for ", kernel->device,
                      *backend ? " of the backend " : "", backend));
    FunctionDevice& device = devices.emplace_back();
    device.name = kernel->device;
    device.backend = backend;
    device.type = static_cast<DeviceType>(type);
    device.shares_state = kernel->flags & OPKIT_KERNEL_STATEFUL;
    std::memcpy(&device.abi, kernel, (std::min)(kernel->size, uint64_t{sizeof device.abi}));
  }
  void AddParameters(const opkit_parameter* const* parameters, uint64_t count, const char* what,
                     auto& list) const {
    CheckArray(count, parameters, what);
    NameIndex seen;
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_parameter* one = parameters[i];
      if (!IsReadable(one))
        Refuse(StrCat("has ", who(), " of whose ", what, " number ", i,
                      " is null or shorter than version 1.0's"));
      if (!one->name || !*one->name)
        Refuse(StrCat("has ", who(), " of whose ", what, " number ", i, " has no name"));
      CheckLibraryText(library_, one->name, StrCat(who(), " with a name among its ", what));
      if (Index(seen.Add(one->name)) < i)
        Refuse(StrCat("has ", who(), " with two ", what, " named '", one->name, "'"));
      const std::string whose = StrCat("has ", who(), " whose '", one->name, "' has ");
      if (one->type < -1 || one->type > OPKIT_ATTR_TENSORS)
        Refuse(StrCat(whose, "the type ", one->type, ", which does not exist"));
      const opkit_attr* value = one->default_value;
      if (const std::string problem = value ? ProblemOfAttr(value) : ""; !problem.empty())
        Refuse(StrCat(whose, "a default that ", problem));
      if (value && one->type >= 0 && value->type != one->type)
        Refuse(StrCat(whose, "a default of the type ", value->type, ", but the type ", one->type));
      auto& to = list.emplace_back();
      to.name = one->name;
      to.doc = Text(one->doc, "a doc");
      if constexpr (requires { to.dtypes; }) {
        for (int dtype = 1; dtype < kNumDTypes; ++dtype)
          if (one->dtypes >> dtype & 1 && !IsObject(static_cast<DType>(dtype)))
            to.dtypes.push_back(static_cast<DType>(dtype));
      } else {
        to.required = one->required != 0;
        if (one->type >= 0) to.type = static_cast<AttributeType>(one->type);
        if (value) to.default_value = ArgumentsOfAbi(&value, 1).begin()->value;
      }
    }
  }

  const opkit_op& op_;
  const std::string& library_;
};

OPKIT_INLINE FunctionRecord ImportOp(const opkit_op* op, uint64_t index,
                                     const std::string& library) {
  if (!op) RefuseDescription(library, StrCat("has a null pointer for operator ", index));
  if (!IsAligned(op))
    RefuseDescription(library,
                      StrCat("describes operator ", index, " at an address that is not aligned"));
  return OpImport(*op, library).Read(index);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_
