// Reads the headers of an ELF file, and checks every value before use.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_ELF_FILE_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_ELF_FILE_IPP_

#include <link.h>  // includes elf.h, too

#include <cstring>

#include "opkit/plugin/load/elf_file.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Reads one file for ReadElf.
class ElfReader {
 public:
  ElfReader(std::string_view file, const std::string& path) : file_(file), path_(path) {}

  ElfInfo Read() {
    CheckIdentity();
    const auto header = At<ElfW(Ehdr)>(0, "ELF header");
    CheckKind(header.e_type);
    ReadSegments(header);
    ReadSections(header);
    return std::move(out_);
  }

 private:
  [[noreturn]] void Refuse(const Text& found, const Text& mend,
                           ErrorCode code = ErrorCode::kInvalidArgument) const {
    RefuseLibrary(code, path_, found, mend);
  }
  [[noreturn]] void Damaged(const Text& what) const {
    Refuse(StrCat("is damaged (", what, ")"), "copy or build it again");
  }
  // Throws if the file lacks the bytes [offset, offset + size). The sum may overflow.
  void Require(uint64_t offset, uint64_t size, const char* what) const {
    if (offset <= file_.size() && size <= file_.size() - offset) return;
    const uint64_t end = size > UINT64_MAX - offset ? UINT64_MAX : offset + size;
    Refuse(StrCat("is cut off (its ", what, " would end at byte ", end, ", the file ends at byte ",
                  file_.size(), ")"),
           "copy or build it again");
  }
  template <class T>
  T At(uint64_t offset, const char* what) const {
    Require(offset, sizeof(T), what);
    T out;  // a copy: the original may be unaligned
    std::memcpy(&out, file_.data() + offset, sizeof out);
    return out;
  }

  void CheckIdentity() const {
    if (file_.empty()) Refuse("is empty", "copy or build it again");
    if (file_.starts_with("!<arch>"))
      Refuse("is a static archive", "link its object files with -shared");
    if (!file_.starts_with(ELFMAG)) {
      bool is_text = true;
      for (const char c : file_.substr(0, 512))
        is_text &= (c & 0x80) || c >= ' ' || (c >= '\a' && c <= '\r');
      if (is_text) Refuse("is a text file", "name the library's .so, or build it with -shared");
      Refuse("is not an ELF file", "name the library's .so");
    }
    Require(0, 20, "ELF header");
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(file_[i]); };
    const int bits = byte(EI_CLASS), order = byte(EI_DATA);  // a valid file has 1 or 2 in each
    if (bits < 1 || bits > 2 || order < 1 || order > 2)
      Damaged("its ELF header has no known class");
    const int machine = order == ELFDATA2LSB ? byte(18) | byte(19) << 8 : byte(19) | byte(18) << 8;
    const std::string found = MachineName(machine, bits, order);
    const std::string ours = MachineName(kMachine ? kMachine : machine, kBits, kOrder);
    if (found != ours)
      Refuse(StrCat("is built for ", found), StrCat("build it for this program's machine, ", ours),
             ErrorCode::kUnsupported);
  }

  void CheckKind(unsigned type) const {
    if (type == ET_DYN) return;
    if (type == ET_REL) Refuse("is an object file", "link it with -shared");
    if (type == ET_EXEC) Refuse("is an executable", "link it with -shared and compile with -fPIC");
    if (type == ET_CORE) Refuse("is a core dump", "name the library's .so");
    Damaged(StrCat("its ELF type is ", type));
  }

  void ReadSegments(const ElfW(Ehdr) & header) {
    bool has_code = false, has_dynamic = false;
    Require(header.e_phoff, uint64_t{header.e_phnum} * sizeof(ElfW(Phdr)), "program headers");
    if (header.e_phnum > 0 && header.e_phentsize != sizeof(ElfW(Phdr)))
      Damaged(StrCat("its program headers have ", header.e_phentsize, " bytes each"));
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      const auto segment =
          At<ElfW(Phdr)>(header.e_phoff + i * sizeof(ElfW(Phdr)), "program headers");
      if (segment.p_type == PT_NULL) continue;
      Require(segment.p_offset, segment.p_filesz, "segments");
      if (segment.p_type == PT_LOAD) {
        has_code = true;
        if (segment.p_filesz > segment.p_memsz) Damaged("a segment has less memory than bytes");
      } else if (segment.p_type == PT_TLS) {
        out_.has_thread_locals = segment.p_memsz > 0;
      } else if (segment.p_type == PT_DYNAMIC) {
        has_dynamic = segment.p_filesz > 0;  // 0 in a file of split-off debug information
        ReadDynamic(segment.p_offset, segment.p_filesz / sizeof(ElfW(Dyn)));
      }
    }
    if (!has_code || !has_dynamic)
      Refuse("has nothing to load", "name the library's .so, or link it with -shared");
  }

  void ReadDynamic(uint64_t offset, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const auto entry = At<ElfW(Dyn)>(offset + i * sizeof(ElfW(Dyn)), "dynamic section");
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag != DT_FLAGS_1) continue;
      out_.no_delete = entry.d_un.d_val & DF_1_NODELETE;
      if (entry.d_un.d_val & DF_1_PIE)
        Refuse("is a position-independent executable (PIE)", "link it with -shared");
    }
  }

  void ReadSections(const ElfW(Ehdr) & header) {
    if (header.e_shoff == 0) return;
    Require(header.e_shoff, uint64_t{header.e_shnum} * sizeof(ElfW(Shdr)), "section headers");
    if (header.e_shnum > 0 && header.e_shentsize != sizeof(ElfW(Shdr)))
      Damaged(StrCat("its section headers have ", header.e_shentsize, " bytes each"));
    bool seen[2] = {};  // reads one table of each kind: many could take hours
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
      const auto section = Section(header, i);
      if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
      Require(section.sh_offset, section.sh_size, "sections");
      const bool dynamic = section.sh_type == SHT_DYNSYM;
      if ((!dynamic && section.sh_type != SHT_SYMTAB) || std::exchange(seen[dynamic], true))
        continue;
      if (section.sh_entsize != sizeof(ElfW(Sym)) || section.sh_link >= header.e_shnum)
        Damaged("a symbol table is not one");
      const auto names = Section(header, section.sh_link);
      if (names.sh_type != SHT_STRTAB) Damaged("a symbol table has no names");
      Require(names.sh_offset, names.sh_size, "symbols' names");
      ReadSymbols(section, file_.substr(names.sh_offset, names.sh_size), dynamic);
    }
  }
  ElfW(Shdr) Section(const ElfW(Ehdr) & header, uint64_t index) const {
    return At<ElfW(Shdr)>(header.e_shoff + index * sizeof(ElfW(Shdr)), "section headers");
  }

  // Reads the symbols of a table. From the full table it reads only local symbols, because the
  // dynamic table lacks them: thread-locals private to a source file.
  void ReadSymbols(const ElfW(Shdr) & table, std::string_view names, bool dynamic) {
    for (uint64_t i = 0; i < table.sh_size / sizeof(ElfW(Sym)); ++i) {
      const auto symbol = At<ElfW(Sym)>(table.sh_offset + i * sizeof(ElfW(Sym)), "symbols");
      const unsigned type = symbol.st_info & 15, binding = symbol.st_info >> 4;
      if (symbol.st_shndx == SHN_UNDEF || dynamic != (binding != STB_LOCAL)) continue;
      std::vector<std::string>* list = nullptr;
      if (type == STT_TLS)
        list = &out_.thread_locals;
      else if (dynamic && binding == STB_GNU_UNIQUE)
        list = &out_.unique;
      else if (dynamic && (type == STT_FUNC || type == STT_GNU_IFUNC))
        list = &out_.functions;
      if (!list) continue;
      const size_t end =
          symbol.st_name < names.size() ? names.find('\0', symbol.st_name) : std::string_view::npos;
      if (end == std::string_view::npos) Damaged("a symbol's name does not end");
      const std::string_view name = names.substr(symbol.st_name, end - symbol.st_name);
      // Limits the sum of lengths: many symbols may have the same very long name.
      text_size_ += name.size();
      if (text_size_ > 16 * file_.size()) Damaged("its symbols' names are larger than the file");
      // Skips the guards of listed variables, and compilers' own symbols. Files for ARM64 mark data
      // by `$d` and code by `$x`.
      if (!name.starts_with("_ZGV") && !name.starts_with("__tls_guard") &&
          !name.starts_with("_TLS_MODULE_BASE_") && !name.starts_with('$'))
        list->emplace_back(name);
    }
  }

  static std::string MachineName(int machine, int bits, int order) {
    constexpr std::pair<int, const char*> kNames[] = {
        {EM_X86_64, "x86-64"}, {EM_386, "x86"},     {EM_AARCH64, "AArch64"}, {EM_ARM, "ARM"},
        {EM_RISCV, "RISC-V"},  {EM_PPC64, "POWER"}, {EM_PPC, "PowerPC"},     {EM_S390, "S/390"},
        {EM_MIPS, "MIPS"},     {258, "LoongArch"},  {EM_SPARCV9, "SPARC"},   {EM_IA_64, "Itanium"}};
    std::string name;
    for (const auto& [number, known] : kNames)
      if (number == machine) name = known;
    if (name.empty()) name = StrCat("machine ", machine);
    return StrCat(name, bits == ELFCLASS64 ? " (64-bit, " : " (32-bit, ",
                  order == ELFDATA2LSB ? "little-endian)" : "big-endian)");
  }

  static constexpr int kBits = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  static constexpr int kOrder =
      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
#if defined(__x86_64__)
  static constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
  static constexpr int kMachine = EM_AARCH64;
#else
  static constexpr int kMachine = 0;  // unknown: the loader checks it
#endif

  std::string_view file_;
  const std::string& path_;
  ElfInfo out_;
  uint64_t text_size_ = 0;
};

OPKIT_INLINE ElfInfo ReadElf(std::string_view file, const std::string& path) {
  return ElfReader(file, path).Read();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_ELF_FILE_IPP_
