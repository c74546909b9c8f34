//! The generated code prints enum fields with these functions. Rust's own `Debug` would print the numbers, and prost's
//! defines a type for each field: a fifth of the memory that compiling the messages needs.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};

/// Prints the name of an enum's value, or the number if this version has no name for it.
type Print = fn(i32, &mut Formatter<'_>) -> fmt::Result;

/// An enum field that prints names. The types of `T` have implementations of `Debug` below.
#[derive(Clone, Copy)]
pub struct Named<T>(T, Print);

pub fn one<E: TryFrom<i32> + Debug>(number: &i32) -> Named<i32> {
    Named(*number, print::<E>)
}

pub fn optional<E: TryFrom<i32> + Debug>(number: &Option<i32>) -> Named<Option<i32>> {
    Named(*number, print::<E>)
}

pub fn list<E: TryFrom<i32> + Debug>(numbers: &[i32]) -> Named<&[i32]> {
    Named(numbers, print::<E>)
}

pub fn map<E: TryFrom<i32> + Debug>(numbers: &HashMap<String, i32>) -> Named<&HashMap<String, i32>> {
    Named(numbers, print::<E>)
}

/// Prints a message with its fields in the order of the declaration.
pub fn message(f: &mut Formatter<'_>, name: &str, fields: &[(&str, &dyn Debug)]) -> fmt::Result {
    let mut output = f.debug_struct(name);
    for (field, value) in fields {
        output.field(field, value);
    }
    output.finish()
}

fn print<E: TryFrom<i32> + Debug>(number: i32, f: &mut Formatter<'_>) -> fmt::Result {
    match E::try_from(number) {
        Ok(value) => Debug::fmt(&value, f),
        Err(_) => Debug::fmt(&number, f),
    }
}

impl Debug for Named<i32> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

impl Debug for Named<Option<i32>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0.map(|number| Named(number, self.1)), f)
    }
}

impl Debug for Named<&[i32]> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|number| Named(*number, self.1))).finish()
    }
}

impl Debug for Named<&HashMap<String, i32>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, number)| (key, Named(*number, self.1)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::v1::{
        AttachmentBlob, AttachmentDirectory, ContentFilterMode, FilterMapping, FilterMappingMap,
        OmittedBinaryOmittedReason as Omitted, ToolExecutionCompleteToolDescriptionMetaUi as Ui,
        ToolExecutionCompleteToolDescriptionMetaUiVisibility as Visibility, filter_mapping::Variant,
    };

    #[test]
    fn enum_fields_have_names() {
        let mut blob = AttachmentBlob { omitted_reason: Omitted::TooLarge.into(), ..Default::default() };
        assert_eq!(
            format!("{blob:?}"),
            "AttachmentBlob { data: None, mime_type: \"\", display_name: None, asset_id: None, byte_length: None, \
             omitted_reason: TooLarge, json_extra: \"\" }"
        );
        blob.omitted_reason = 4711;
        assert!(format!("{blob:?}").contains(" omitted_reason: 4711,"), "{blob:?}");
    }

    #[test]
    fn lists_maps_and_oneofs_have_names() {
        let visibility = vec![Visibility::Model.into(), 4711, Visibility::App.into()];
        let ui = Ui { visibility, ..Default::default() };
        assert_eq!(
            format!("{ui:?}"),
            "ToolExecutionCompleteToolDescriptionMetaUi { resource_uri: None, visibility: [Model, 4711, App], \
             json_extra: \"\" }"
        );

        let entries = HashMap::from([("web".to_owned(), ContentFilterMode::Markdown.into())]);
        let map = FilterMappingMap { entries };
        assert_eq!(format!("{map:?}"), "FilterMappingMap { entries: {\"web\": Markdown} }");

        let value = FilterMapping { variant: Some(Variant::Value(ContentFilterMode::None.into())) };
        assert_eq!(format!("{value:?}"), "FilterMapping { variant: Some(Value(None)) }");
    }

    #[test]
    fn optional_values_have_names() {
        let printed = format!("{:?} {:?}", optional::<Visibility>(&Some(1)), optional::<Visibility>(&None));
        assert_eq!(printed, "Some(Model) None");
    }

    #[test]
    fn messages_without_enums_have_all_fields() {
        let folder = AttachmentDirectory { path: "/tmp".into(), ..Default::default() };
        assert_eq!(
            format!("{folder:?}"),
            "AttachmentDirectory { path: \"/tmp\", display_name: \"\", tagged_files_entry: None, json_extra: \"\" }"
        );
    }
}
