# Writes OUTPUT: the files of db/schema/ as C++ string literals, in order of FILES.
set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  file(READ ${path} sql)
  string(APPEND entries "    {\"${name}\", R\"lastflop_sql(${sql})lastflop_sql\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by db/embed_schema.cmake.
#include \"db/schema.h\"

namespace lastflop {
namespace {

constexpr SchemaFile kSchemaFiles[] = {
${entries}};

}  // namespace

std::span<const SchemaFile> SchemaFiles() { return kSchemaFiles; }

}  // namespace lastflop
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
