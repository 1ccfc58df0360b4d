//! Where the types of two guests differ that export an interface of the same name: they were built from two texts of
//! one version.

use wasmtime::component::types::{ComponentFunc, ComponentInstance, ComponentItem, Type};

use crate::Guest;

impl Guest {
    /// The first exported function whose type is not the one it has in `wanted`, and what differs: ``
    /// `a:b/i@0.1.0#f`: p.ports: a record of name, port, must be of port ``.
    pub fn differs_in_type(&self, wanted: &Self) -> Option<String> {
        let engine = self.component.engine();
        self.exports.iter().find_map(|interface| {
            let (found, wanted) = (self.interface(interface)?, wanted.interface(interface)?);
            let mut functions = wanted.exports(engine);
            functions.find_map(|(name, wanted)| match (found.get_export(engine, name)?.ty, wanted.ty) {
                (ComponentItem::ComponentFunc(found), ComponentItem::ComponentFunc(wanted)) => {
                    of_function(&found, &wanted).map(|differs| format!("`{interface}#{name}`: {differs}"))
                }
                _ => None,
            })
        })
    }

    fn interface(&self, name: &str) -> Option<ComponentInstance> {
        let kind = self.component.component_type();
        match kind.get_export(self.component.engine(), name)?.ty {
            ComponentItem::ComponentInstance(interface) => Some(interface),
            _ => None,
        }
    }
}

fn of_function(found: &ComponentFunc, wanted: &ComponentFunc) -> Option<String> {
    let names = |of: &ComponentFunc| of.params().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    let results = found.results().map(|found| ("its result", found));
    let types = wanted.params().map(|(_, wanted)| wanted).chain(wanted.results());
    of_names("", "parameters", &names(found), &names(wanted)).or_else(|| {
        let mut both = found.params().chain(results).zip(types);
        both.find_map(|((name, found), wanted)| of_type(name, &found, &wanted))
    })
}

/// How two types differ, with the path to the place.
fn of_type(path: &str, found: &Type, wanted: &Type) -> Option<String> {
    if found == wanted {
        return None;
    }
    let of_parts = match (found, wanted) {
        (Type::List(found), Type::List(wanted)) => of_type(path, &found.ty(), &wanted.ty()),
        (Type::Option(found), Type::Option(wanted)) => of_type(path, &found.ty(), &wanted.ty()),
        (Type::Result(found), Type::Result(wanted)) => {
            let mut both = [(found.ok(), wanted.ok()), (found.err(), wanted.err())].into_iter();
            both.find_map(|(found, wanted)| of_type(path, &found?, &wanted?))
        }
        (Type::Record(found), Type::Record(wanted)) if found.fields().len() == wanted.fields().len() => {
            let mut both = found.fields().zip(wanted.fields());
            both.find_map(|(found, wanted)| of_type(&format!("{path}.{}", found.name), &found.ty, &wanted.ty))
        }
        _ => None,
    };
    let of_names = || {
        let ((kind, found), (_, wanted)) = (names(found)?, names(wanted)?);
        of_names(&format!("{path}: "), kind, &found, &wanted)
    };
    of_parts
        .or_else(of_names)
        .or_else(|| Some(format!("{path} is of another type")))
}

fn names(of: &Type) -> Option<(&'static str, Vec<String>)> {
    Some(match of {
        Type::Record(of) => ("a record", of.fields().map(|field| field.name.to_owned()).collect()),
        Type::Variant(of) => ("a variant", of.cases().map(|case| case.name.to_owned()).collect()),
        Type::Enum(of) => ("an enum", of.names().map(str::to_owned).collect()),
        _ => return None,
    })
}

fn of_names(path: &str, kind: &str, found: &[String], wanted: &[String]) -> Option<String> {
    let differ = || format!("{path}{kind} of {}, must be of {}", found.join(", "), wanted.join(", "));
    (found != wanted).then(differ)
}
