//! Totals with names: one definition gives the fields, their names in reports, and their sum.

/// Defines a struct of `u64` totals that only grow. `named` lists the totals in a fixed order, `values_mut`
/// makes them writable, and `add` adds another struct's. `MEANINGS` describes the totals by their doc
/// comments. `with` adds a group of totals that is a struct of this kind itself; its own `MEANINGS` describe them.
///
/// ```
/// base::counts! {
///     /// What a door counts.
///     pub struct Door {
///         /// Opened.
///         opened,
///         /// Slammed.
///         slammed,
///     }
/// }
/// let mut door = Door { opened: 2, slammed: 1 };
/// door.add(&Door { opened: 1, slammed: 0 });
/// assert_eq!(door.named().collect::<Vec<_>>(), [("opened", 3), ("slammed", 1)]);
/// door.values_mut().into_iter().for_each(|total| *total = 0);
/// assert_eq!(door, Door::default());
/// assert_eq!(Door::MEANINGS[1], ("slammed", " Slammed."));
///
/// base::counts! {
///     /// What a house counts.
///     pub struct House {
///         /// Guests.
///         guests,
///     }
///     /// Its door.
///     with door: Door
/// }
/// let mut house = House { guests: 2, door: Door { opened: 2, slammed: 0 } };
/// house.add(&house.clone());
/// assert_eq!(house.named().collect::<Vec<_>>(), [("guests", 4), ("opened", 4), ("slammed", 0)]);
/// ```
#[macro_export]
macro_rules! counts {
    (
        $(#[$about:meta])* pub struct $type:ident { $($(#[doc = $doc:expr])+ $name:ident,)* }
        $($(#[$group_about:meta])+ with $group:ident: $group_type:ty)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $name: u64,)*
            $($(#[$group_about])+ pub $group: $group_type,)?
        }

        impl $type {
            /// The name and the description of every total but a group's. Each line of a description begins with a space.
            pub const MEANINGS: &[(&'static str, &'static str)] = &[$((stringify!($name), concat!($($doc),+))),*];

            /// Every total with its name, in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()$(.chain(self.$group.named()))?
            }

            /// Every total, in the same order, writable.
            pub fn values_mut(&mut self) -> impl IntoIterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter()$(.chain(self.$group.values_mut()))?
            }

            /// Adds the totals of another struct.
            pub fn add(&mut self, other: &$type) {
                $(self.$name += other.$name;)*
                $(self.$group.add(&other.$group);)?
            }
        }
    };
}
