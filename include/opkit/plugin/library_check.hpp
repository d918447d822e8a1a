// What a library says of its operators, read without trusting it.
#ifndef OPKIT_PLUGIN_LIBRARY_CHECK_HPP_
#define OPKIT_PLUGIN_LIBRARY_CHECK_HPP_

#include "opkit/op/abi/abi_attributes.hpp"
#include "opkit/op/function/function_operator.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline bool HasBackward(const opkit_op& op) {
  for (uint64_t k = 0; k < op.num_kernels; ++k)
    if (op.kernels[k]->backward) return true;
  return false;
}

// Every problem of a library's description is an Error that names it; nothing is registered yet.
template <class Image>
class LibraryCheck {
 public:
  explicit LibraryCheck(const Image& image) : image_(image) {}

  void Check() const {
    const opkit_library* library = image_.library;
    if (library->size < kLibraryBytes)
      Refuse(StrCat("describes itself in ", library->size, " bytes, where version 1.0 has ",
                    kLibraryBytes),
             "fill in opkit_library.size with sizeof(opkit_library)");
    CheckText(library->name, "opkit_library.name");
    if (library->num_partitioners > 0 || library->num_passes > 0)
      Refuse(StrCat("brings ", library->num_partitioners, " partitioners and ", library->num_passes,
                    " passes, which version ", OPKIT_ABI_MAJOR, ".", OPKIT_ABI_MINOR,
                    " of the ABI does not have"),
             "load it in a newer program", ErrorCode::kUnsupported);
    if (library->num_ops > 0 && !library->ops)
      Refuse("has operators, but opkit_library.ops is null", {});
    if (library->num_ops > kMostOps)
      Refuse(StrCat("says it has ", library->num_ops, " operators"), "at most a million");
    for (uint64_t i = 0; i < library->num_ops; ++i) {
      if (!library->ops[i]) Refuse(StrCat("has a null pointer for operator ", i), {});
      CheckOp(*library->ops[i], i);
    }
    CheckNamesDiffer(*library);
  }

  [[noreturn]] OPKIT_COLD void Refuse(const std::string& what, const std::string& mend,
                                      ErrorCode code = ErrorCode::kInvalidArgument) const {
    Throw(code, "library ", image_.name, " ", what, mend.empty() ? "" : "; ", mend);
  }

 private:
  static constexpr uint64_t kMostOps = 1'000'000;
  static constexpr size_t kLongestName = 255;

  // A count, and the array that it counts.
  void CheckArray(uint64_t count, const void* array, const std::string& who,
                  const char* what) const {
    if (count > kMostParts)
      Refuse(StrCat("has ", who, " with ", count, " ", what), StrCat("at most ", kMostParts));
    if (count > 0 && !array) Refuse(StrCat("has ", who, " whose ", what, " are null"), {});
  }
  // A name for people: not too long, and of one line.
  void CheckText(const char* name, const std::string& what) const {
    if (!name) return;
    for (size_t i = 0; name[i]; ++i) {
      const auto c = static_cast<unsigned char>(name[i]);
      if (i >= kLongestName)
        Refuse(StrCat("has ", what, " of more than ", kLongestName,
                      " bytes: ", std::string(name, 32), "…"),
               {});
      if (c < ' ' || c == 127)
        Refuse(StrCat("has ", what, " that holds the character ", static_cast<int>(c)), {});
    }
  }

  void CheckOp(const opkit_op& op, uint64_t index) const {
    if (op.size < kOpBytes)
      Refuse(StrCat("describes operator ", index, " in ", op.size, " bytes, where version 1.0 has ",
                    kOpBytes),
             "fill in opkit_op.size with sizeof(opkit_op)");
    CheckName(op, index);
    const std::string who = StrCat("operator ", op.name);
    if (op.num_kernels == 0 || !op.kernels)
      Refuse(StrCat("has ", who, " without a kernel"),
             "give it a forward function: "
             "REGISTER_OP(…).setForward(f), or setCreateOpState(f)");
    CheckArray(op.num_kernels, op.kernels, who, "kernels");
    for (uint64_t k = 0; k < op.num_kernels; ++k) CheckKernel(op, k);
    CheckArray(op.num_inplace, op.inplace, who, "in-place pairs");
    for (uint64_t i = 0; i < op.num_inplace; ++i)
      if (op.inplace[2 * i] < 0 || op.inplace[2 * i + 1] < 0)
        Refuse(StrCat("has ", who, " that may run in place from input ", op.inplace[2 * i],
                      " to output ", op.inplace[2 * i + 1]),
               "both count from 0");
    CheckParameters(op.attrs, op.num_attrs, who, "attributes");
    CheckParameters(op.inputs, op.num_inputs, who, "inputs");
    CheckParameters(op.outputs, op.num_outputs, who, "outputs");
  }
  void CheckName(const opkit_op& op, uint64_t index) const {
    if (!op.name || !*op.name) Refuse(StrCat("gives operator ", index, " no name"), {});
    const std::string_view name = op.name;
    if (name.size() > kLongestName)
      Refuse(StrCat("has an operator whose name has ", name.size(), " bytes, ", name.substr(0, 32),
                    "…"),
             StrCat(kLongestName, " are the most"));
    if (name.find("::") != std::string_view::npos)
      Refuse(StrCat("has an operator named \"", name, "\""),
             "\"::\" is for parts of operators; name it otherwise");
    for (const char c : name)
      if (static_cast<unsigned char>(c) <= ' ' || c == 127)
        Refuse(StrCat("has an operator whose name holds the character ",
                      static_cast<int>(static_cast<unsigned char>(c))),
               "use letters, digits, _ . -");
  }
  void CheckKernel(const opkit_op& op, uint64_t k) const {
    const opkit_kernel* kernel = op.kernels[k];
    if (!kernel || kernel->size < kKernelBytes || !kernel->device)
      Refuse(StrCat("has kernel ", k, " of operator ", op.name,
                    " that is null, shorter than version 1.0's or without a device"),
             {});
    if (!kernel->forward)
      Refuse(StrCat("has operator ", op.name, " without a forward function for ", kernel->device),
             StrCat("REGISTER_OP(", op.name, ").setForward(f, \"", kernel->device,
                    "\"), or setCreateOpState(f, \"", kernel->device, "\")"));
    if (DeviceTypeFromName(kernel->device) < 0)
      Refuse(StrCat("has a kernel of operator ", op.name, " for \"", kernel->device,
                    "\", which is no device type of this program"),
             "\"cpu\", \"gpu\" and \"cpu_stream\" are");
    for (uint64_t other = 0; other < k; ++other)
      if (DeviceTypeFromName(op.kernels[other]->device) == DeviceTypeFromName(kernel->device))
        Refuse(StrCat("has two kernels of operator ", op.name, " for ", kernel->device), {});
  }
  void CheckParameters(const opkit_parameter* const* parameters, uint64_t count,
                       const std::string& who, const char* what) const {
    CheckArray(count, parameters, who, what);
    NameTable<int> seen;
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_parameter* one = parameters[i];
      if (!one || one->size < kParameterBytes)
        Refuse(StrCat("has ", who, " of whose ", what, " number ", i,
                      " is null or shorter than version 1.0's"),
               {});
      if (!one->name || !*one->name)
        Refuse(StrCat("has ", who, " of whose ", what, " number ", i, " has no name"), {});
      CheckText(one->name, StrCat(who, " with a name among its ", what));
      if (seen.Find(one->name))
        Refuse(StrCat("has ", who, " with two ", what, " named '", one->name, "'"), {});
      seen.FindOrAdd(one->name);
      if (one->type < -1 || one->type > OPKIT_ATTR_TENSORS)
        Refuse(StrCat("has ", who, " whose '", one->name, "' has the type ", one->type,
                      ", which does not exist"),
               {});
      if (!one->default_value) continue;
      if (const std::string problem = ProblemOfAttr(one->default_value); !problem.empty())
        Refuse(StrCat("has ", who, " whose '", one->name, "' has a default that ", problem), {});
      if (one->type >= 0 && one->default_value->type != one->type)
        Refuse(StrCat("has ", who, " whose '", one->name, "' has a default of the type ",
                      one->default_value->type, ", but the type ", one->type),
               {});
    }
  }
  // The gradient of an operator is one, too.
  void CheckNamesDiffer(const opkit_library& library) const {
    NameTable<int> seen;
    const auto add = [&](const std::string& name) {
      if (seen.Find(name))
        Refuse(StrCat("has two operators named ", name), "remove or rename one",
               ErrorCode::kAlreadyExists);
      seen.FindOrAdd(name);
    };
    for (uint64_t i = 0; i < library.num_ops; ++i) {
      const opkit_op& op = *library.ops[i];
      add(op.name);
      if (HasBackward(op)) add(StrCat(op.name, "_backward"));
    }
  }

  const Image& image_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_CHECK_HPP_
